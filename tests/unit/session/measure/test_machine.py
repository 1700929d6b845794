"""A machine is leased before a launcher exists, and freed after it is closed."""

from __future__ import annotations

import contextlib

import pytest

from ddp_perf.core.environment import Cluster
from ddp_perf.session.measure import machine
from ddp_perf.session.measure.machine import Launchers
from tests.builders import FakeLauncher, make_capacity, make_gpu_machine


@pytest.fixture
def events(monkeypatch):
    """What was leased, opened, closed and freed, in order."""
    noted = []

    class Launcher(FakeLauncher):
        def __init__(self):
            super().__init__()
            noted.append("opened")

        def close(self):
            noted.append("closed")

    @contextlib.contextmanager
    def lease(*, patience_s, on_wait, gpus):
        noted.append(f"leased with {len(gpus)} GPUs")
        try:
            yield
        finally:
            noted.append("freed")

    monkeypatch.setattr(machine, "ServerLauncher", Launcher)
    monkeypatch.setattr(machine, "machine_lease", lease)
    return noted


def opened(capacity=None):
    return machine.open_machine(
        capacity or make_capacity(),
        Launchers(Cluster(), on_wait=print),
        on_wait=print,
    )


def test_the_machine_is_leased_with_its_gpus_and_freed_after_the_launcher_is_closed(events):
    with opened(make_capacity(make_gpu_machine("H200", "H200"))) as launcher:
        launcher.runtime()

    assert events == ["leased with 2 GPUs", "opened", "closed", "freed"]


def test_the_gpus_stay_in_use_between_launches(events, monkeypatch):
    monkeypatch.setattr(machine, "keep_open", lambda uuids: events.append(tuple(uuids)))
    capacity = make_capacity(make_gpu_machine("NVIDIA H200", "NVIDIA H200"))

    with opened(capacity):
        pass
    with opened():
        pass

    assert [one for one in events if isinstance(one, tuple)] == [
        tuple(gpu.uuid for gpu in capacity.machine.gpus)
    ]
