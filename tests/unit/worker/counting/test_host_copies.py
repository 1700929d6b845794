"""Calls of the user's that copy to the host without dispatching an operation."""

from __future__ import annotations

import pytest
import torch

from ddp_perf.worker.counting.sites import note_host_copies

CPU = torch.device("cpu")


@pytest.fixture
def noted():
    found = []
    with note_host_copies(lambda name, dtype: found.append((name, dtype))):
        yield found


@pytest.mark.parametrize(
    "copy",
    [
        lambda tensor: tensor.cpu(),
        lambda tensor: tensor.tolist(),
        lambda tensor: tensor.numpy(),
        lambda tensor: tensor.to("cpu"),
        lambda tensor: tensor.to(device="cpu"),
    ],
)
def test_a_copy_to_the_host_is_noted_with_its_dtype(noted, copy):
    copy(torch.ones(3))

    assert noted == [("copy_to_host", "float32")]


@pytest.mark.parametrize(
    "keep",
    [
        lambda tensor: tensor.to(CPU),  # the device on which the step is counted
        lambda tensor: tensor.to(torch.float64),
        lambda tensor: tensor.to(tensor),
        lambda tensor: torch.stack([tensor]),
    ],
)
def test_what_stays_on_the_device_is_none(noted, keep):
    keep(torch.ones(3))

    assert noted == []


def test_a_wait_for_the_gpu_is_noted_and_does_not_touch_it(noted):
    torch.cuda.synchronize()

    assert noted == [("synchronize", "none")]


def test_the_methods_are_those_of_torch_again(noted):
    with note_host_copies(lambda name, dtype: None):
        pass
    torch.ones(1).cpu()
    assert len(noted) == 1


def test_nothing_is_left_of_it_afterwards():
    before = torch.Tensor.cpu, torch.Tensor.numpy, torch.cuda.synchronize
    with note_host_copies(lambda name, dtype: None):
        pass

    assert (torch.Tensor.cpu, torch.Tensor.numpy, torch.cuda.synchronize) == before
