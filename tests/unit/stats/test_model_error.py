"""The error of a model: an interval that it widens, and what lies beyond one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddp_perf.stats.model_error import ModelError


@given(*[st.floats(0, 0.9)] * 2, *[st.floats(0, 3)] * 2)
def test_what_exceeds_a_widened_interval_does_so_by_that_much(of_change, of_step, half, chance):
    error = ModelError(of_change, of_step)
    log = error.exceeding(half, chance)

    assert log - error.widened(half, log) == pytest.approx(chance, abs=1e-9)


def test_without_an_error_an_interval_stays_as_it_is():
    assert ModelError().widened(0.03, 0.4) == 0.03
    assert ModelError().exceeding(0.03, 0.02) == pytest.approx(0.05)
