"""The control is timed on a warm device."""

from __future__ import annotations

import pytest
import torch

from ddp_perf.worker.timing.clock import REPEATS, control_times_s

CUDA = torch.device("cuda", 0)


def test_both_halves_of_the_control_run_on_a_warm_gpu(gpu):
    gpu.cold_s = 0.1
    before = control_times_s(CUDA)
    gpu.rest(1.0)  # as between the last step and the second half of the control
    after = control_times_s(CUDA)

    assert before == after == pytest.approx([2.3e-3] * REPEATS, rel=0.01)


def test_the_control_has_the_size_of_every_stored_baseline(gpu):
    control_times_s(CUDA)

    assert set(gpu.sizes) == {4096}


def test_the_control_of_a_cpu_needs_no_warming():
    assert len(control_times_s(torch.device("cpu"))) == REPEATS
