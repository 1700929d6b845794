"""The MFU of a case, and the detection of an impossible one."""

from __future__ import annotations

import pytest

from ddp_perf.session.gate.targets import utilisation_of
from tests.builders import make_case, make_measurement

STEPS = [0.010, 0.010, 0.012]


def utilisation(flops, accelerator="h200", tier="gpu", formats=("fp32",)):
    by_format = {name: flops // len(formats) for name in formats} if flops else {}
    measurement = make_measurement(
        make_case(tier=tier), STEPS, flops=flops, flops_by_format=by_format
    )
    return utilisation_of(measurement, accelerator)


def test_utilisation_is_computed_from_the_typical_step():
    found = utilisation(134_000_000_000)

    assert found.mfu == pytest.approx(0.2)
    assert str(found) == "20.0% of 67 TFLOP/s (fp32, dense)"
    assert not found.is_impossible


@pytest.mark.parametrize(
    ("formats", "text"),
    [
        (["bf16"], "50.6% of 989 TFLOP/s (bf16, dense)"),
        (["tf32"], "none: 500 TFLOP/s exceed 494.5 TFLOP/s (tf32, dense), so the GPU used a"),
        (["bf16", "tf32"], "75.8% of 659.3 TFLOP/s (bf16, tf32, dense)"),
        (["fp32"], "none: 500 TFLOP/s exceed 67 TFLOP/s (fp32, dense), so the GPU used a faster"),
        (["float64"], "none: no dense peak of h200 is known for all of: float64"),
        ([], "none: the formats of its operations were not counted"),
    ],
    ids=str,
)
def test_the_peak_is_that_of_the_formats_that_the_step_computes_in(formats, text):
    found = utilisation(5 * 10**12, formats=formats)

    assert str(found).startswith(text)
    assert (found.mfu is None) == text.startswith("none")
    assert not found.is_impossible


def test_an_unknown_gpu_has_no_utilisation_and_the_text_states_it():
    found = utilisation(134_000_000_000, accelerator="geforce-rtx-4090")

    assert found.mfu is None
    assert str(found) == "none: no dense peak of geforce-rtx-4090 is known for all of: fp32"
    assert not found.is_impossible


def test_a_rate_beyond_the_largest_peak_is_impossible():
    found = utilisation(2 * 10**13)

    assert found.is_impossible
    assert str(found) == "2000 TFLOP/s are more than any format of h200 allows"


@pytest.mark.parametrize(
    ("flops", "tier"), [(None, "gpu"), (0, "gpu"), (10**9, "cpu")], ids=["old", "none", "cpu"]
)
def test_utilisation_is_none_on_a_cpu_and_without_counted_operations(flops, tier):
    assert utilisation(flops, tier=tier) is None
