"""A simulated GPU for the tests of the code inside a rank."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest
import torch

from tests.simulated_gpu import CLOCK_HZ, SimulatedGpu


@pytest.fixture
def gpu(monkeypatch):
    """A simulated GPU and its host, in place of torch's CUDA calls and this process's clocks."""
    simulated = SimulatedGpu()
    for owner, name, stand_in in (
        (torch.cuda, "Event", simulated.event),
        (torch.cuda, "current_stream", lambda device=None: "stream"),
        (torch.cuda, "synchronize", simulated.synchronize),
        (torch.cuda, "_sleep", lambda cycles: simulated.work(cycles / CLOCK_HZ)),
        # A matrix is represented by its size.
        (torch, "mm", simulated.multiply),
        (torch, "empty", lambda *size, device: size[0]),
        (torch, "full", lambda size, value, device: SimpleNamespace(unbind=lambda: size[1:])),
        (time, "monotonic", lambda: simulated.now_s),
        (time, "perf_counter", lambda: simulated.now_s),
    ):
        monkeypatch.setattr(owner, name, stand_in)
    return simulated
