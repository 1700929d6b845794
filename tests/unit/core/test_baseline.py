"""The level of a metric is the median over the first sessions that have the metric."""

from __future__ import annotations

import pytest

from tests.builders import make_case, make_case_baseline, make_session

WITHOUT_ENERGY = [make_session([0.01 * day, 0.03 * day], day=day) for day in range(1, 6)]
WITH_ENERGY = [make_session([0.1], day=day, energy=float(day)) for day in range(6, 13)]
STORED = make_case_baseline(make_case(), *WITHOUT_ENERGY, *WITH_ENERGY)


def test_the_reference_is_the_first_five_sessions():
    assert STORED.reference("step_time") == tuple(WITHOUT_ENERGY)
    assert STORED.level("step_time") == pytest.approx(0.06)


def test_the_reference_of_a_metric_that_was_added_later_begins_later():
    assert STORED.sessions_with("energy") == tuple(WITH_ENERGY)
    assert STORED.reference("energy") == tuple(WITH_ENERGY[:5])
    assert STORED.level("energy") == 8.0


def test_a_metric_without_a_session_has_no_level():
    assert STORED.reference("efficiency") == ()
    assert STORED.level("efficiency") is None
