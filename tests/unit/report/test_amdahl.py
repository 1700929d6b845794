"""Amdahl's law in one line for each scaling curve."""

from __future__ import annotations

import re

import pytest

from ddp_perf.core.launch import RankConditions
from ddp_perf.report.step_terms import amdahl_lines
from tests.builders import (
    make_cases,
    make_collectives,
    make_measurement,
    make_result,
    with_conditions,
)


def result_of(serial, **suite):
    """Return a suite whose steps follow the law exactly (weak scaling)."""
    measurements = [
        make_measurement(case, [0.01 * (1 + serial * (case.world_size - 1))] * 3)
        for case in make_cases(**suite)
    ]
    return make_result(measurements)


def test_serial_fraction_limit_and_observed_speedup_are_stated():
    (line,) = amdahl_lines(result_of(0.1, world_sizes=[1, 2, 4, 8]))

    assert line.startswith("Amdahl's law, mlp-ddp-fp32-b64: serial fraction 10 % (90 % interv")
    assert "speed-up never over 9.98 (9.78 to 10.2)" in line
    assert line.endswith("8 ranks: speed-up 4.71 observed, 4.70 by the law, 8 ideal")


def test_ranks_that_share_one_batch_have_amdahls_own_serial_fraction():
    """Amdahl (1967): the serial part stays, and the ranks share the rest."""
    cases = make_cases(world_sizes=[1, 2, 4, 8], batch_sizes={"global": [64]})
    steps = [0.01 * (0.1 + 0.9 / case.world_size) for case in cases]

    (line,) = amdahl_lines(
        make_result([make_measurement(c, [s] * 3) for c, s in zip(cases, steps, strict=True)])
    )

    found = re.search(r"fraction (\S+) %.* (\S+) by the law", line)
    serial, by_law = map(float, found.groups())
    assert serial == pytest.approx(10, rel=0.03)
    assert by_law == pytest.approx(4.71, rel=0.02)
    assert "speed-up 4.71 observed" in line


def test_a_law_through_two_points_is_no_test_of_it():
    (line,) = amdahl_lines(result_of(0.5, world_sizes=[1, 2]))

    assert line.endswith("1.33 by the law, 2 ideal (2 points: no test of the law)")


def test_a_curve_that_the_law_does_not_fit_shows_it():
    cases = make_cases(world_sizes=[1, 2, 8])
    steps = (0.010, 0.015, 0.016)  # the second rank costs more than six further ones
    result = make_result([make_measurement(c, [s] * 3) for c, s in zip(cases, steps, strict=True)])

    (line,) = amdahl_lines(result)

    assert "8 ranks: speed-up 5.00 observed" in line
    assert "5.00 by the law" not in line


def test_a_curve_of_disturbed_launches_is_not_fitted():
    one, two = make_cases()
    busy = with_conditions(make_measurement(two, [0.02] * 3), *[RankConditions(foreign=0.9)] * 3)

    lines = amdahl_lines(make_result([make_measurement(one, [0.01] * 3), busy]))

    assert lines == ["Amdahl's law: 1 curve not fitted, because launches were disturbed"]


def test_ranks_that_are_slower_than_one_have_no_serial_fraction():
    (line,) = amdahl_lines(result_of(1.5, world_sizes=[1, 2]))

    assert line.endswith(
        "0.80 observed, 2 ideal; 2 ranks are not faster than one, which the law excludes"
    )


def test_each_curve_has_its_line_and_its_short_name():
    lines = amdahl_lines(result_of(0.2, batch_sizes=[64, 128]))

    assert [line[:19] for line in lines] == ["Amdahl's law, b64: ", "Amdahl's law, b128:"]


@pytest.mark.parametrize(
    "cases", [make_cases(world_sizes=[2]), make_collectives()[:2]], ids=["one size", "collectives"]
)
def test_without_two_world_sizes_there_is_no_law(cases):
    assert amdahl_lines(make_result([make_measurement(case, [0.01] * 3) for case in cases])) == []
