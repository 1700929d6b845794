"""What the measurement of a script does before it begins to time its steps."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import pytest
import torch
from torch import nn

from ddp_perf.core.launch import Collective, LaunchRequest, Profiling, Structure
from ddp_perf.errors import ScriptError
from ddp_perf.worker.injection.effects import Injected
from ddp_perf.worker.script import measure
from ddp_perf.worker.script.measure import needed_steps
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


def test_compiled_code_is_timed_compiled_and_the_memory_that_it_needs_uncompiled_is_no_peak(
    monkeypatch,
):
    graphs, forgotten = [], []

    def backend(graph, examples):
        def compiled(*arguments):
            graphs.append(run.steps.done)
            return graph(*arguments)

        return compiled

    model = nn.Linear(4, 2)
    whole = torch.compile(model, backend=backend)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    run = Run()

    def script():
        while True:
            whole(torch.ones(2, 4)).sum().backward()
            optimizer.step()

    def measurement(*arguments, peak_before):
        for _ in range(2):
            yield
        return peak_before

    monkeypatch.setattr(measure, "measurement", measurement)
    monkeypatch.setattr(measure, "peak_memory_of", lambda device: 100 + run.steps.done)
    monkeypatch.setattr(measure, "forget_peak_memory", lambda _: forgotten.append(run.steps.done))
    request, context = LaunchRequest(case=make_script_case(), round=0), make_context()
    plan = measure._plan(request, context, run.steps, Injected((), context), [])

    assert run.run(script, plan) == 103
    assert forgotten == [5]  # the two steps before are the counted ones
    assert graphs == [0, 1, 2, 5, 6]


STRUCTURE = Structure(
    parameters=1,
    gradient_bytes=4,
    buckets=(),
    collectives=(Collective(kind="all_gather", dtype="float32", bytes=4),),
)


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
        measure._check(
            make_script_case(tier=tier), trained_on(trained, strategy), STRUCTURE, measured
        )


def test_a_script_may_train_on_its_gpu_with_shards_on_the_host():
    case = make_script_case(tier="gpu")
    measure._check(case, trained_on(CUDA), STRUCTURE, CUDA)
    measure._check(case, trained_on(CPU, "fsdp"), STRUCTURE, CUDA)
