"""What the measurement of a script does before its timed steps, and what may fail after them."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

import msgspec
import pytest
import torch
from torch import nn

from ddp_perf.core.launch import LaunchRequest, Profiling
from ddp_perf.errors import ScriptError
from ddp_perf.worker import step_probe as probe_module
from ddp_perf.worker.counting import structure
from ddp_perf.worker.rank_context import Examination
from ddp_perf.worker.script import measure
from ddp_perf.worker.script import steps as steps_module
from ddp_perf.worker.script.measure import needed_steps
from tests.builders import make_rank_result, make_script_facts
from tests.unit.worker.contexts import CPU, CUDA, make_context
from tests.unit.worker.script.scripts import Run, make_script_case


@pytest.mark.parametrize(
    ("tier", "traced", "needed"),
    [
        ("cpu", None, 3 + 2 + 8),  # settled, counted, timed
        ("cpu", 2, 3 + 2 + 8 + 1 + 2),  # the profiler starts up in one more
        ("gpu", None, 3 + 2 + 10 + 3 * 5 + 1 + 8),  # windows until it is steady, and one step
    ],
)
def test_the_fewest_steps_are_known_before(tmp_path, tier, traced, needed):
    request = LaunchRequest(case=make_script_case(tier=tier), round=0)
    if traced is not None:
        profiling = Profiling(steps=traced, directory=str(tmp_path))
        request = msgspec.structs.replace(request, profiling=profiling)

    assert needed_steps(request) == needed


class OnlyCompiled(nn.Linear):
    """A module that fits into the memory only if it is compiled."""

    def forward(self, batch):
        if not torch.compiler.is_compiling():
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.\nSee …")
        return super().forward(batch)


@pytest.fixture
def measured():
    """``measured(train)``: what is measured of a script that calls ``train(steps done)`` for ever,
    the times that were delivered before, and the examination."""

    def measure_it(train):
        delivered = []
        examination = Examination(
            lambda result, *, whole=False: None if whole else delivered.append(result)
        )
        context = msgspec.structs.replace(make_context(), examination=examination)
        run = Run()
        request = LaunchRequest(case=make_script_case(), round=0, probe_steps=2)
        plan = measure._plan(request, lambda: context, run.steps)

        def script():
            while True:
                train(run.steps.done)

        return run.run(script, plan), delivered, examination

    return measure_it


def make_trained(model):
    """Return a step of a compiled model."""
    whole = torch.compile(model, backend="eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def train(done):
        whole(torch.ones(2, 4)).sum().backward()
        optimizer.step()

    return train


def test_a_compiled_script_is_counted_after_its_timed_steps(measured, monkeypatch):
    steps, counted = [], []
    train, count = make_trained(nn.Linear(4, 2)), structure.count_structure

    def noted(*arguments):
        counted.append(steps[-1] + 1)
        return count(*arguments)

    monkeypatch.setattr(measure, "count_structure", noted)

    def noting(done):
        steps.append(done)
        train(done)

    result, _, examination = measured(noting)

    assert counted[0] >= 3 + 8  # those that settle, and the timed ones
    assert result.structure.parameters == 10
    assert (result.missing, examination.left) == ({}, False)


def test_a_script_that_does_not_fit_uncompiled_keeps_its_times(measured):
    result, (times,), examination = measured(make_trained(OnlyCompiled(4, 2)))

    assert len(result.step_s) >= 6
    assert (result.step_s, result.control_s) == (times.step_s, times.control_s)
    assert (result.structure, result.flops, result.one_batch) == (None, None, False)
    why = "OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB."
    assert result.missing == {"structure": why, "probe": why}
    assert examination.left  # another rank may wait for this one in its backward


@pytest.mark.parametrize("mine", [True, False])
def test_no_rank_is_probed_if_one_has_no_structure(measured, monkeypatch, mine):
    """The ranks with one would wait in the collectives of the probe for the one without."""
    asked = []

    def agree(yes, device):
        asked.append(yes)
        return False

    def count(module, examination):
        yield
        return examination.alone("structure", lambda: {}["no such key"])

    monkeypatch.setattr(measure, "all_agree", agree)
    monkeypatch.setattr(measure, "probe", lambda *arguments: pytest.fail("a rank is probed"))
    if not mine:
        monkeypatch.setattr(measure, "count_structure", count)

    result, _, examination = measured(make_trained(nn.Linear(4, 2)))

    assert asked == [mine]
    assert result.missing["probe"] == "a rank has no structure"
    assert ("structure" in result.missing) is not mine
    assert not examination.left


@pytest.mark.parametrize(
    ("compiles", "traced", "owes"), [(False, 0, False), (True, 0, True), (False, 2, True)]
)
def test_steps_are_owed_after_the_timed_ones_if_they_are_counted_or_profiled_there(
    tmp_path, monkeypatch, compiles, traced, owes
):
    noted = []

    def noting(request, context, steps, examination, prepared):
        noted.append(prepared.owes_steps)
        yield from ()
        return make_rank_result()

    monkeypatch.setattr(measure, "measurement", noting)
    monkeypatch.setattr(measure, "compiles_by_itself", lambda: compiles)
    profiling = Profiling(steps=traced, directory=str(tmp_path)) if traced else None
    request = LaunchRequest(case=make_script_case(), round=0, profiling=profiling)
    run, model = Run(), nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def script():
        while True:
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()

    run.run(script, measure._plan(request, make_context, run.steps))

    assert noted == [owes]


def test_the_first_control_runs_on_the_gpu_that_the_script_trains_on(monkeypatch):
    """A script need not set its device: its rank then has GPU 0 as the current one."""
    current, noted = [CUDA], []

    @contextlib.contextmanager
    def entered(device):
        current.append(device)
        yield
        current.pop()

    class NotedError(Exception):
        pass

    def control(device):
        noted.append((device, current[-1]))
        raise NotedError

    used = torch.device("cuda", 1)
    monkeypatch.setattr(torch.cuda, "device", entered)
    monkeypatch.setattr(steps_module, "gpu_of", lambda optimizer: used)
    monkeypatch.setattr(measure, "peak_memory_of", lambda device: 0)
    monkeypatch.setattr(measure, "control_before", control)
    run, train = Run(), make_trained(nn.Linear(4, 2))
    plan = measure._plan(
        LaunchRequest(case=make_script_case(), round=0),
        lambda: make_context(run.steps.used_gpu()),
        run.steps,
    )

    with pytest.raises(NotedError):
        run.run(lambda: train(0), plan)

    assert noted == [(used, used)]


def make_failing(monkeypatch, error):
    """Return the step of a script that raises an error as soon as it is probed."""
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    probing, probe = [], probe_module.probe

    def noted(*arguments):
        probing.append(True)
        return (yield from probe(*arguments))

    monkeypatch.setattr(measure, "probe", noted)

    def train(done):
        if probing:
            raise error
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()

    return train


@pytest.mark.parametrize("error", [ValueError("bad batch"), SystemExit(1)])
def test_a_script_that_fails_after_its_timed_steps_keeps_its_times(measured, monkeypatch, error):
    result, (times,), examination = measured(make_failing(monkeypatch, error))

    assert result.step_s == times.step_s
    assert result.structure is not None
    assert list(result.missing) == ["probe"]
    assert examination.left


def test_a_script_that_fails_before_its_times_are_there_fails_the_launch(measured):
    train = make_trained(nn.Linear(4, 2))

    def failing(done):
        if done == 7:
            raise ValueError("bad batch")
        train(done)

    with pytest.raises(ValueError, match="bad batch"):
        measured(failing)


def trained_on(device, strategy="ddp"):
    parameters = [SimpleNamespace(device=device)]
    module = SimpleNamespace(parameters=lambda: iter(parameters))
    return SimpleNamespace(module=module, strategy=strategy)


@pytest.mark.parametrize(
    ("tier", "measured", "trained", "strategy"),
    [
        ("gpu", CUDA, torch.device("cuda", 1), "ddp"),  # the clock of the rank's GPU sees no step
        ("gpu", CUDA, CPU, "ddp"),
        ("cpu", CPU, CUDA, "fsdp"),
    ],
)
def test_a_script_that_trains_on_another_device_than_its_ranks_is_refused(
    tier, measured, trained, strategy
):
    with pytest.raises(ScriptError, match=f"trains on {trained}, but tier {tier} measures"):
        measure._check_device(make_script_case(tier=tier), trained_on(trained, strategy), measured)


def test_a_script_may_train_on_its_gpu_with_shards_on_the_host():
    case = make_script_case(tier="gpu")
    measure._check_device(case, trained_on(CUDA), CUDA)
    measure._check_device(case, trained_on(CPU, "fsdp"), CUDA)


def test_files_that_cannot_be_listed_fail_no_launch(capsys):
    """The times are there; and a script that failed is reported as what it is."""

    def fails():
        raise RuntimeError("dictionary changed size during iteration")

    def too_early():
        raise ScriptError("train.py ended")

    tree = SimpleNamespace(own_files=fails, changed_outside=lambda: ["/data/x"])
    result = make_rank_result(script=make_script_facts())

    listed = measure._with_files(lambda: result, tree, lists_own=True)

    assert (listed.script.own_files, listed.script.changed_files) == ((), ("/data/x",))
    assert "not all that the script wrote is listed: RuntimeError" in capsys.readouterr().err
    tree.changed_outside = fails
    with pytest.raises(ScriptError, match=r"^train.py ended$"):
        measure._with_files(too_early, tree, lists_own=True)
