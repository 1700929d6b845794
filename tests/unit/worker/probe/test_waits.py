"""Each place where Python waits for communication is bracketed, and restored."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch._C._distributed_c10d import ProcessGroup, Work

from ddp_perf.worker.probe.waits import note_waits

MODULE = nn.Linear(1, 1)


@pytest.fixture
def noted():
    """What was noted between the beginning and the end of the calls of a test."""
    return []


def test_note_waits_observes_the_wait_of_a_future(noted):
    future = torch.futures.Future()
    future.set_result(1)
    with note_waits(MODULE, noted.append):
        assert future.wait() == 1
    assert noted == [False, True]


@pytest.mark.parametrize(("work", "waited"), [(None, True), ("a work", False)])
def test_note_waits_counts_a_call_without_a_returned_work_as_a_wait(
    monkeypatch, noted, work, waited
):
    """As NCCL's do from torch 2.8 on."""
    monkeypatch.setattr(ProcessGroup, "allreduce", lambda group, tensors: work)
    with note_waits(MODULE, noted.append):
        assert ProcessGroup.allreduce(object(), []) == work
    assert noted == [False, waited]


def test_note_waits_restores_the_methods(noted):
    """As it lies in its class: what getattr gives of a pybind11 method binds no instance."""
    owners = {ProcessGroup: "allreduce", Work: "wait", torch.futures.Future: "wait"}
    before = {owner: vars(owner)[name] for owner, name in owners.items()}
    with note_waits(MODULE, noted.append):
        assert all(vars(owner)[name] is not before[owner] for owner, name in owners.items())
    assert all(vars(owner)[name] is before[owner] for owner, name in owners.items())
