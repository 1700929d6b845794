"""The steps of scripts that train in different ways, as torch's hooks show them."""

from __future__ import annotations

import contextlib
import copy
import gc
import pickle
import sys

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from ddp_perf.errors import ScriptError
from ddp_perf.worker.report import BEATS_PER_STEP
from ddp_perf.worker.steps.protocol import StepsEndedError
from ddp_perf.worker.timing.timed_steps import timed_steps
from tests.unit.worker.script.scripts import Run

BATCH = torch.ones(2, 4)


def sgd(*modules):
    return torch.optim.SGD([p for module in modules for p in module.parameters()], lr=0.01)


def endless(step):
    def script():
        while True:
            step()

    return script


def test_the_rank_ends_in_the_middle_of_a_script_that_catches_all():
    model = nn.Linear(4, 2)
    optimizer = sgd(model)
    run = Run(3)

    def script():
        for _ in range(4):
            model(BATCH).sum().backward()
            optimizer.step()
        pytest.fail("the script goes on after the last step that is needed")

    assert run.run(script) == 4
    assert run.steps.module is model
    assert run.steps.strategy == "none"
    assert run.steps.facts().steps_at.startswith("test_steps.py:")


def test_a_step_of_one_of_several_optimizers_is_a_step():
    """As in the training of a GAN: the second optimizer has a module of its own."""
    critic, generator = nn.Linear(4, 1), nn.Linear(4, 4)
    first, second = sgd(critic), sgd(generator)
    run = Run(3)

    def step():
        critic(BATCH).sum().backward()
        critic(generator(BATCH).detach()).sum().backward()
        first.step()
        critic(generator(BATCH)).sum().backward()
        second.step()

    assert run.run(endless(step)) == 4
    assert run.steps.module is critic
    facts = run.steps.facts()
    assert facts.optimizers == 2
    assert facts.micro_steps == (2, 3)  # in the first step, and from then on


def test_optimizers_that_share_a_model_show_the_whole_of_it():
    model = nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 2))
    first, second = sgd(model[0]), sgd(model[1])
    run = Run(3)

    def step():
        model(torch.tensor([1, 2])).sum().backward()
        first.step()
        second.step()

    assert run.run(endless(step)) == 4
    assert run.steps.module is model


class Container(torch.optim.Optimizer):
    """An optimizer that steps others, as ZeroRedundancyOptimizer does."""

    def __init__(self, *parts):
        self.parts = parts
        parameters = [p for part in parts for group in part.param_groups for p in group["params"]]
        super().__init__(parameters, {})

    def step(self, closure=None):
        for part in self.parts:
            part.step()


def test_an_optimizer_within_another_one_is_a_part_of_it():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    container = Container(sgd(model[0]), sgd(model[1]))
    run = Run(3)

    def step():
        model(BATCH).sum().backward()
        container.step()

    assert run.run(endless(step)) == 4
    assert run.steps.facts().optimizers == 1
    assert run.steps.module is model


@pytest.mark.filterwarnings("ignore:Converting a tensor")  # of LBFGS in torch 2.8
def test_a_closure_computes_several_gradients_in_one_step():
    model = nn.Linear(4, 2)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3, line_search_fn=None)
    run = Run(2)

    def closure():
        optimizer.zero_grad()
        loss = model(BATCH).square().sum()
        loss.backward()
        return loss

    assert run.run(endless(lambda: optimizer.step(closure))) == 3
    assert run.steps.facts().micro_steps[1] > 1


def test_each_epoch_may_have_a_new_optimizer():
    model = nn.Linear(4, 2)

    def epoch():
        optimizer = sgd(model)
        for _ in range(2):
            model(BATCH).sum().backward()
            optimizer.step()

    assert Run(4).run(endless(epoch)) == 5


def test_steps_that_a_scaler_skips_are_steps_from_the_first_one_on():
    model = nn.Linear(4, 2)
    optimizer, scaler = sgd(model), torch.amp.GradScaler("cpu", init_scale=1.0)
    run = Run(3)

    def step():
        scaler.scale(model(BATCH).sum() * float("inf")).backward()
        scaler.step(optimizer)
        scaler.update()

    assert run.run(endless(step)) == 4
    assert run.steps.facts().skipped == 4


def test_the_backward_of_a_checkpoint_is_a_part_of_the_whole_one():
    model = nn.Linear(4, 4)
    optimizer = sgd(model)
    run = Run(2)

    def step():
        data = BATCH.clone().requires_grad_()
        checkpoint(
            model, checkpoint(model, data, use_reentrant=True), use_reentrant=True
        ).sum().backward()
        optimizer.step()

    assert run.run(endless(step)) == 3
    assert run.steps.facts().micro_steps == (1, 1)


def test_the_module_in_a_compiled_one_is_found():
    model = nn.Linear(4, 2)
    optimizer = sgd(model)
    compiled = torch.compile(model, backend="eager")
    run = Run(3)

    def step():
        compiled(BATCH).sum().backward()
        optimizer.step()

    assert run.run(endless(step)) == 4
    assert run.steps.module is model


def test_every_step_has_as_many_beats():
    model = nn.Linear(4, 2)
    optimizer = sgd(model)
    run = Run(3)

    def step():
        for _ in range(3):
            model(BATCH).sum().backward()
        optimizer.step()

    run.run(endless(step))
    (progress,) = run.heartbeats.read()
    assert progress.beats == 4 * BEATS_PER_STEP


def test_the_phases_of_accumulated_steps_are_observed_in_order():
    model = nn.Linear(4, 2)
    optimizer, other = sgd(model), sgd(nn.Linear(1, 1))
    run = Run()
    phases, losses = [], []

    def plan():
        yield
        with run.steps.observe(phases.append, lambda loss: losses.append(loss.item())):
            yield
            yield
        phases.append("over")
        yield
        return 0

    def step():
        for number in range(2):
            (model(BATCH).sum() * 0 + number).backward()
        optimizer.step()
        other.step()

    run.run(endless(step), plan())
    micro_step = ["data", "forward", "backward"]
    whole = [*micro_step, *micro_step, "optimizer"]
    assert phases == ["optimizer", *whole, "optimizer", *whole, "over"]
    assert losses == [0, 1, 0, 1]


@pytest.mark.parametrize("left", ["float64", "autocast"])
def test_the_plan_computes_as_in_a_fresh_process(left):
    model = nn.Linear(4, 2)
    optimizer = sgd(model)

    def plan():
        for _ in range(2):
            assert torch.ones(1).dtype is torch.mm(torch.ones(2, 2), torch.ones(2, 2)).dtype
            assert torch.get_default_dtype() is torch.float32
            yield
        return 0

    def script():
        for _ in range(4):
            model(BATCH).sum().backward()
            optimizer.step()
            expected = torch.float64 if left == "float64" else torch.bfloat16
            assert torch.mm(torch.ones(2, 2), torch.ones(2, 2)).dtype is expected

    try:
        if left == "float64":
            torch.set_default_dtype(torch.float64)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=left == "autocast"):
            assert Run().run(script, plan()) == 0
    finally:
        torch.set_default_dtype(torch.float32)


def test_an_error_of_the_plan_ends_the_rank_whatever_the_script_catches():
    model = nn.Linear(4, 2)
    optimizer = sgd(model)

    def plan():
        yield
        raise ScriptError("no collective")

    def step():
        try:
            model(BATCH).sum().backward()
            optimizer.step()
        except ScriptError:
            pytest.fail("the script catches it")

    with pytest.raises(ScriptError, match="no collective"):
        Run().run(endless(step), plan())


@pytest.mark.parametrize("how", ["plain", "no_sync", "attribute"])
def test_no_gradients_are_averaged_for_steps_apart_however_the_script_accumulates(how):
    averaged = []
    run = Run()

    def plan():
        yield
        assert run.steps.strategy == "ddp"
        with run.steps.unsynchronised():
            yield
            yield
        yield
        return 0

    def script():
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        model, other = (DistributedDataParallel(nn.Linear(4, 2)) for _ in range(2))
        optimizer = sgd(model)
        while True:
            with model.no_sync() if how == "no_sync" else contextlib.nullcontext():
                model(BATCH).sum().backward()
            if how == "attribute":
                model.require_backward_grad_sync = True
            last = model(BATCH), other(BATCH)
            averaged.append((model.require_backward_grad_sync, other.require_backward_grad_sync))
            sum(one.sum() for one in last).backward()
            optimizer.step()

    assert run.run(script, plan()) == 0
    assert averaged == [(True, True)] * 2 + [(False, False)] * 2 + [(True, True)]


def trained(steps, end=lambda: None):
    model = nn.Linear(4, 2)
    optimizer = sgd(model)

    def script():
        for _ in range(steps):
            model(BATCH).sum().backward()
            optimizer.step()
        end()

    return script


def test_a_plan_may_do_without_its_last_steps():
    def plan():
        yield
        try:
            yield
        except StepsEndedError:
            return 7
        return 8

    assert Run().run(trained(2), plan()) == 7
    assert Run().run(trained(2, sys.exit), plan()) == 7
    assert Run().run(trained(3), plan()) == 8


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (trained(0), "train.py ended (at the end of the file) without a step of an optimizer"),
        (trained(2), "after 2 steps (test_steps.py:"),
        (trained(2), "), but needs 12: 8 of `steps:`, and 4 before them; let it train longer"),
        (trained(2, lambda: sys.exit(0)), "train.py ended (sys.exit(0) at test_steps.py:"),
        (trained(2, lambda: sys.exit(3)), "train.py failed after 2 steps: sys.exit(3) at test_s"),
        (trained(20, lambda: sys.exit(3)), "train.py failed after 20 steps: sys.exit(3) at test"),
        (trained(2, lambda: sys.exit("disk")), "train.py failed after 2 steps: sys.exit('disk')"),
    ],
)
def test_a_script_that_ends_too_early_states_how(script, said):
    with pytest.raises(ScriptError) as raised:
        Run(30, needed=12).run(script)
    assert said in str(raised.value)


def test_a_script_that_ends_in_a_long_warm_up_is_not_told_that_it_had_enough_steps():
    with pytest.raises(ScriptError) as raised:
        Run(30, needed=12).run(trained(20))
    assert "after 20 steps (test_steps.py:" in str(raised.value)
    assert "which are too few to warm up and then time 8 of them; let it tr" in str(raised.value)
    assert "needs" not in str(raised.value)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_script_may_copy_its_model_whole_while_its_steps_are_observed(copied):
    """As for an average of its weights, or a checkpoint."""
    model = nn.Linear(4, 2)
    optimizer = sgd(model)
    run = Run()
    phases = []

    def plan():
        yield
        with run.steps.observe(phases.append):
            yield
            yield
        return 0

    def step():
        copied(model)(BATCH)
        model(BATCH).sum().backward()
        optimizer.step()

    assert run.run(endless(step), plan()) == 0
    assert phases == ["data", "forward", "backward", "optimizer"] * 2


def test_the_error_of_a_script_is_its_own():
    with pytest.raises(ZeroDivisionError):
        Run().run(trained(2, lambda: 1 / 0))


def ends_its_group(script, *, then=lambda: None):
    def whole():
        try:
            script()
        finally:
            dist.destroy_process_group()
        then()

    return whole


def test_a_script_may_end_its_group_before_its_last_line():
    def plan():
        yield
        try:
            yield
        except StepsEndedError:
            return dist.get_world_size()

    assert Run().run(ends_its_group(trained(2), then=lambda: 1 / 0), plan()) == 1
    assert Run().run(ends_its_group(trained(2, sys.exit)), plan()) == 1


def test_the_end_of_the_group_does_not_hide_why_a_script_failed():
    with pytest.raises(ZeroDivisionError):
        Run(30).run(ends_its_group(trained(2, lambda: 1 / 0)))
    with pytest.raises(ScriptError, match=r"failed after 2 steps: sys.exit\(3\) at test_steps"):
        Run(30).run(ends_its_group(trained(2, lambda: sys.exit(3))))

    def catches():
        with contextlib.suppress(ZeroDivisionError):
            ends_its_group(trained(2, lambda: 1 / 0))()

    with pytest.raises(ScriptError, match="failed after 2 steps: an error, after which it ended"):
        Run(30).run(catches)


@pytest.fixture
def engine(tmp_path, monkeypatch):
    """A module of the user, whose functions may end steps."""
    (tmp_path / "engine.py").write_text(
        "def finish(): pass\nVALUE = 1\n"
        "class Engine:\n"
        "    def plain(self): return self\n"
        "    @classmethod\n    def of_class(cls): return cls\n"
        "    @staticmethod\n    def alone(): return 1\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield lambda: sys.modules["engine"]
    del sys.modules["engine"]


@pytest.mark.parametrize("name", ["Engine.plain", "Engine.of_class", "Engine.alone", "finish"])
def test_the_return_of_a_function_may_end_a_step(engine, name):
    """Optimizers that step within the backward, or none at all."""
    model = nn.Linear(4, 2)
    run = Run(3, steps_by=f"engine:{name}")

    def step():
        model(BATCH).sum().backward()
        with torch.no_grad():
            model.weight -= 0.01 * model.weight.grad
        if name == "finish":
            engine().finish()
            return
        one = engine().Engine()
        returned = getattr(one, name.partition(".")[2])()
        assert returned in (one, engine().Engine, 1)

    assert run.run(endless(step)) == 4
    assert run.steps.facts().optimizers == 0


@pytest.mark.parametrize(
    ("steps_by", "said"),
    [
        ("motor:finish", "steps_by: motor:finish does not exist: No module named 'motor'"),
        ("engine:Motor.run", "does not exist: module 'engine' has no attribute 'Motor'"),
        ("engine:VALUE", "steps_by: engine:VALUE is no function, but int"),
        ("train:step", "is of the script itself, where it is not defined before the script runs"),
        ("__main__:step", "name a function of a module that the script imports"),
        ("engine:finish", "and engine:finish never returned before; let steps_by name a function"),
    ],
)
def test_a_function_that_cannot_end_steps_is_refused(engine, steps_by, said):
    import_engine = __import__("engine")
    assert import_engine is engine()
    with pytest.raises(ScriptError) as raised:
        Run(steps_by=steps_by).run(trained(20))
    assert said in str(raised.value)


def test_optimizers_within_the_backward_end_no_step():
    model = nn.Linear(4, 2)
    owned = {p: torch.optim.SGD([p], lr=0.01) for p in model.parameters()}
    for parameter in owned:
        parameter.register_post_accumulate_grad_hook(lambda p: owned[p].step())

    with pytest.raises(ScriptError, match=r"steps its optimizers within the backward \(test_st"):
        Run().run(endless(lambda: model(BATCH).sum().backward()))


def test_garbage_is_collected_in_the_timed_steps_of_a_script():
    model = nn.Linear(4, 2)
    optimizer = sgd(model)
    run = Run()
    collected = []

    def step():
        collected.append(gc.isenabled())
        model(BATCH).sum().backward()
        optimizer.step()

    def plan():
        yield
        timed = yield from timed_steps(run.steps, 3, torch.device("cpu"))
        return len(timed.step_s)

    assert run.run(endless(step), plan()) == 3
    assert collected == [True] * 5
