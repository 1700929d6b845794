"""Each method in which Python waits for communication is patched, and restored."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch._C._distributed_c10d import ProcessGroup, Work

from ddp_perf.worker.step_probe import note_waits

MODULE = nn.Linear(1, 1)


@pytest.fixture
def noted():
    """The arguments of ``note`` during the calls of a test."""
    return []


def test_note_waits_observes_the_wait_of_a_future(noted):
    future = torch.futures.Future()
    future.set_result(1)
    with note_waits(MODULE, noted.append):
        assert future.wait() == 1
    assert noted == [False, True]


@pytest.mark.parametrize(("work", "waited"), [(None, True), ("a work", False)])
def test_note_waits_counts_a_call_that_returns_no_work(monkeypatch, noted, work, waited):
    """From torch 2.8 on the synchronous calls of NCCL return no work."""
    monkeypatch.setattr(ProcessGroup, "allreduce", lambda group, tensors: work)
    with note_waits(MODULE, noted.append):
        assert ProcessGroup.allreduce(object(), []) == work  # type: ignore[call-overload]
    assert noted == [False, waited]


def test_note_waits_restores_the_methods(noted):
    """They are compared by ``vars``: getattr of a pybind11 class binds no instance."""
    owners = {ProcessGroup: "allreduce", Work: "wait", torch.futures.Future: "wait"}
    before = {owner: vars(owner)[name] for owner, name in owners.items()}
    with note_waits(MODULE, noted.append):
        assert all(vars(owner)[name] is not before[owner] for owner, name in owners.items())
    assert all(vars(owner)[name] is before[owner] for owner, name in owners.items())
