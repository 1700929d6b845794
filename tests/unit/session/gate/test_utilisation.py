"""The MFU of a case, and the detection of an impossible one."""

from __future__ import annotations

import pytest

from ddp_perf.session.gate.utilisation import utilisation_of
from tests.builders import make_case, make_measurement

STEPS = [0.010, 0.010, 0.012]


def utilisation(flops, accelerator="h200", tier="gpu"):
    measurement = make_measurement(make_case(tier=tier), STEPS, flops=flops)
    return utilisation_of(measurement, accelerator)


def test_utilisation_is_computed_from_the_typical_step():
    found = utilisation(134_000_000_000)

    assert found.mfu == pytest.approx(0.2)
    assert str(found) == "20.0% of 67 TFLOP/s (fp32, dense)"
    assert not found.is_impossible


def test_an_unknown_gpu_has_no_utilisation_and_the_text_states_it():
    found = utilisation(134_000_000_000, accelerator="geforce-rtx-4090")

    assert found.mfu is None
    assert str(found) == "none: no dense fp32 peak of geforce-rtx-4090 is known"
    assert not found.is_impossible


def test_utilisation_beyond_the_peak_is_impossible():
    assert utilisation(10**12).is_impossible


@pytest.mark.parametrize(
    ("flops", "tier"), [(None, "gpu"), (0, "gpu"), (10**9, "cpu")], ids=["old", "none", "cpu"]
)
def test_utilisation_is_none_on_a_cpu_and_without_counted_operations(flops, tier):
    assert utilisation(flops, tier=tier) is None
