"""compute:N% slows a step by the given share, or reports the share that it reached."""

from __future__ import annotations

import statistics

import pytest

from ddp_perf.core.injection import parse_injection
from ddp_perf.worker.counting.structure import FlopCounter
from ddp_perf.worker.injection.effects import Injected, products_for, times_s
from tests.builders import make_case
from tests.unit.worker.contexts import CPU, CUDA, make_context


class SimulatedTrainer:
    """A trainer with one kernel a step; in a captured step the host needs no time to launch it."""

    micro_steps = 1

    def __init__(self, gpu, *, device_s, host_s):
        self._gpu, self._device_s, self._host_s = gpu, device_s, host_s
        self.is_captured = False
        self._loss = self._kernel

    def _kernel(self, module, batch):
        self._gpu.work(self._device_s, 0.0 if self.is_captured else self._host_s)

    def wrap_loss(self, wrap):
        self._loss = wrap(self._loss)

    def step(self):
        self._loss(None, None)

    def capture(self):
        self.is_captured = True

    def release(self):
        self.is_captured = False


def slowed(gpu, share, *, cuda_graphs=False, **step):
    """Return by which share compute:N% slowed a step, as measured here and as reported by it."""
    trainer = SimulatedTrainer(gpu, **step)
    injected = Injected([parse_injection(f"compute:{share:.0%}")], make_context(CUDA))
    injected.change_case(make_case(tier="gpu", cuda_graphs=cuda_graphs))
    gpu.synchronize()
    injected.apply_to(trainer)
    trainer.is_captured = cuda_graphs
    slowed_s = statistics.median(times_s(CUDA, trainer.step, 50))
    plain_s = max(step["device_s"], 0.0 if cuda_graphs else step["host_s"])
    return slowed_s / plain_s - 1, injected.slowdown


@pytest.mark.parametrize("share", [0.03, 0.10, 0.20, 1.00])
@pytest.mark.parametrize("step_s", [0.002, 0.020, 0.200])
def test_compute_slows_a_device_bound_step_by_the_given_share(gpu, share, step_s):
    measured, reported = slowed(gpu, share, device_s=step_s, host_s=step_s / 2)

    assert measured == pytest.approx(share, rel=0.05)
    assert reported == pytest.approx(share, rel=0.05)


def test_compute_slows_a_captured_step_by_a_share_of_its_own_time(gpu):
    """An eager step takes longer, so the same share of it would be too much."""
    measured, reported = slowed(gpu, 0.1, cuda_graphs=True, device_s=0.010, host_s=0.030)

    assert measured == pytest.approx(0.1, rel=0.05)
    assert reported == pytest.approx(0.1, rel=0.05)


def test_compute_reports_that_a_host_bound_step_hides_the_products(gpu):
    measured, reported = slowed(gpu, 0.1, device_s=0.002, host_s=0.020)

    assert measured < 0.05
    assert reported == pytest.approx(measured, abs=0.001)


@pytest.mark.parametrize(("seconds", "size"), [(0.00005, 256), (0.001, 1024), (0.1, 2048)])
def test_a_longer_time_is_filled_with_larger_products(gpu, seconds, size):
    products_for(seconds, CUDA)

    assert gpu.sizes[-1] == size


def test_a_cpu_has_small_products_only():
    products = products_for(0.001, CPU)

    assert products.count >= 1
    with FlopCounter() as counter:
        products.run()
    assert counter.flops == 0  # they slow the step, and are none of its work
