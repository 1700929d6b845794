"""The MFU of a case, and the one that cannot be true."""

from __future__ import annotations

import pytest

from ddp_perf.session.gate.utilisation import utilisation_of
from tests.builders import make_case, make_measurement

STEPS = [0.010, 0.010, 0.012]


def utilisation(flops, accelerator="h200", tier="gpu"):
    measurement = make_measurement(make_case(tier=tier), STEPS, flops=flops)
    return utilisation_of(measurement, accelerator)


def test_the_typical_step_of_the_ranks_gpu_decides():
    found = utilisation(134_000_000_000)

    assert found.mfu == pytest.approx(0.2)
    assert str(found) == "20.0% of 67 TFLOP/s (fp32, dense)"
    assert not found.is_impossible


def test_an_unknown_gpu_has_none_and_says_so():
    found = utilisation(134_000_000_000, accelerator="geforce-rtx-4090")

    assert found.mfu is None
    assert str(found) == "none: no dense fp32 peak of geforce-rtx-4090 is known"
    assert not found.is_impossible


def test_more_than_the_hardware_can_do_is_impossible():
    assert utilisation(10**12).is_impossible


@pytest.mark.parametrize(
    ("flops", "tier"), [(None, "gpu"), (0, "gpu"), (10**9, "cpu")], ids=["old", "none", "cpu"]
)
def test_where_nothing_was_counted_and_on_a_cpu_there_is_none(flops, tier):
    assert utilisation(flops, tier=tier) is None
