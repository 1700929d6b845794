"""Capturing and replaying a step. torch's graphs are faked, since there may be no GPU."""

from __future__ import annotations

import contextlib
import gc
import weakref

import pytest
import torch

from ddp_perf.errors import LaunchError
from ddp_perf.worker.steps.trainer import WARM_UPS, Trainer, graph_stream, is_captured
from tests.builders import make_cases
from tests.unit.worker.contexts import CPU, CUDA, make_context

ONE, _ = make_cases(tier="gpu", cuda_graphs=True)


class FakeGraph:
    """A graph that computes during its capture; its replays are only counted."""

    replays = 0

    def replay(self):
        FakeGraph.replays += 1


@pytest.fixture
def captures(monkeypatch):
    """The arguments of each capture so far."""
    noted = []

    @contextlib.contextmanager
    def graph(graph, **arguments):
        noted.append(arguments)
        yield

    monkeypatch.setattr(FakeGraph, "replays", 0)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", FakeGraph)
    monkeypatch.setattr(torch.cuda, "graph", graph)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: "the side stream")
    return noted


@pytest.fixture
def counted():
    """A trainer on a CPU, and the batches for which its loss was computed."""
    trainer, calls = Trainer(ONE, make_context()), []

    def wrap(plain):
        return lambda module, batch: calls.append(batch) or plain(module, batch)

    trainer.wrap_loss(wrap)
    return trainer, calls


def test_capture_follows_enough_eager_steps_on_the_same_stream(captures, counted):
    trainer, calls = counted

    trainer.capture()

    assert len(calls) == WARM_UPS + 1  # the last one is captured
    assert captures == [{"stream": "the side stream", "capture_error_mode": "thread_local"}]


def test_a_captured_step_replays_the_gradients_and_runs_the_optimizer(captures, counted):
    trainer, calls = counted
    trainer.capture()
    before = trainer.module.state_dict()["0.weight"].clone()

    for _ in range(3):
        trainer.step()

    assert (FakeGraph.replays, len(calls)) == (3, WARM_UPS + 1)
    assert not torch.equal(trainer.module.state_dict()["0.weight"], before)


def test_a_replayed_step_has_the_loss_that_the_graph_wrote(captures, counted):
    trainer, _ = counted
    trainer.capture()

    for _ in range(16 - WARM_UPS):
        trainer.step()

    assert list(trainer.losses.read()) == ["1", "2", "4", "8", "16"]


def test_a_released_step_is_launched_by_the_host_again(captures, counted):
    trainer, calls = counted
    trainer.capture()

    trainer.release()
    trainer.step()

    assert (FakeGraph.replays, len(calls)) == (0, WARM_UPS + 2)


def test_a_captured_trainer_is_in_no_reference_cycle(captures):
    """In a cycle, DDP would live until after destroy_process_group, which then hangs."""
    trainer = Trainer(ONE, make_context())
    trainer.capture()
    dead = weakref.ref(trainer)
    gc.disable()
    try:
        del trainer
        assert dead() is None
    finally:
        gc.enable()


def test_capture_refuses_changing_batches_with_a_remedy(captures):
    trainer = Trainer(ONE, make_context())
    trainer.wrap_batches(lambda batches: (batch for batch in batches))  # as a workload's iterator

    with pytest.raises(LaunchError, match="a graph replays one batch; give it as a tuple"):
        trainer.capture()
    assert captures == []


def test_a_gpu_case_that_runs_on_a_cpu_is_not_captured():
    assert is_captured(ONE, CUDA)
    assert not is_captured(ONE, CPU)
    with graph_stream(ONE, CPU):
        pass
    assert not is_captured(make_cases(tier="gpu")[0], CUDA)
