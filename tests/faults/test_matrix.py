"""The rows of the matrix: one of each fault, and sound only if every trial is."""

from __future__ import annotations

import msgspec
import pytest

from tests.faults.matrix import Tried, rows_of

TRIED = Tried(
    fault="SIGKILL", where="2 ranks", seen="killed", kept="launches", survived=True, noticed_s=0.5
)


def change(**fields):
    return msgspec.structs.replace(TRIED, **fields)


def test_the_trials_of_a_fault_are_one_row():
    later = change(where="4 ranks", noticed_s=2.0, seen="also killed")

    first, second = rows_of([TRIED, change(fault="SIGSTOP", noticed_s=None), later])

    assert (first.fault, first.where, first.seen) == ("SIGKILL", ("2 ranks", "4 ranks"), "killed")
    assert (first.tried, first.survived, first.slowest_s) == (2, 2, 2.0)
    assert (second.fault, second.tried, second.slowest_s) == ("SIGSTOP", 1, None)


@pytest.mark.parametrize("fault", [{"survived": False}, {"lost": 1}, {"leaked": ("a socket",)}])
def test_one_unsound_trial_makes_its_row_unsound(fault):
    assert next(rows_of([TRIED, TRIED])).is_sound
    assert not next(rows_of([TRIED, change(**fault)])).is_sound
