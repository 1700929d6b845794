"""Which counts of a case are stored."""

from __future__ import annotations

import msgspec
import pytest

from ddp_perf.baselines.save import Saving
from ddp_perf.baselines.work import StoredWork, WorkBaseline
from ddp_perf.work.session import merge_work
from ddp_perf.work.values import CountedCase
from tests.builders import make_cases
from tests.works import make_site, make_work

ONE, TWO, FOUR = make_cases(world_sizes=[1, 2, 4])
USUAL = make_work((make_site(10), {}))
MORE = make_work((make_site(10), {"count": 2}))
EMPTY = WorkBaseline(suite="quick", torch="2.13")


def holding(*cases, step=USUAL):
    stored = {case.id: StoredWork(options=case.work(), step=step) for case in cases}
    return msgspec.structs.replace(EMPTY, cases=stored)


def merged(baseline, *counted, mode="missing", reason=None):
    saving = Saving(mode=mode, reason=reason)
    for case, work in counted:
        one = CountedCase(case=case, work=work)
        baseline = merge_work(baseline, one, saving, date="2026-01-02", commit="abc")
    return baseline


@pytest.mark.parametrize("mode", ["missing", "append", "accept"])
def test_a_case_that_is_not_stored_is_added_without_an_entry_in_the_log(mode):
    added = merged(holding(ONE), (ONE, USUAL), (TWO, USUAL), mode=mode, reason="new")
    assert added == holding(ONE, TWO)


@pytest.mark.parametrize("mode", ["missing", "append"])
def test_stored_counts_stay_unless_others_are_accepted(mode):
    assert merged(holding(TWO), (TWO, MORE), mode=mode) == holding(TWO)


def test_accepted_counts_replace_the_stored_ones_and_are_logged():
    accepted = merged(holding(ONE, TWO), (TWO, MORE), (ONE, USUAL), mode="accept", reason="a norm")
    assert accepted.cases == {**holding(ONE).cases, **holding(TWO, step=MORE).cases}
    (entry,) = accepted.accepted
    assert (entry.date, entry.commit, entry.reason) == ("2026-01-02", "abc", "a norm")
    assert entry.cases == (TWO.id,)


def test_cases_of_one_acceptance_are_one_entry_of_the_log_even_one_by_one():
    """Each process of pytest-xdist stores each of its cases by itself."""
    baseline = holding(ONE, TWO, FOUR)
    for case in (ONE, TWO):
        baseline = merged(baseline, (case, MORE), mode="accept", reason="a norm")
    assert [entry.cases for entry in baseline.accepted] == [tuple(sorted((ONE.id, TWO.id)))]
    baseline = merged(baseline, (FOUR, MORE), mode="accept", reason="another")
    assert [entry.reason for entry in baseline.accepted] == ["a norm", "another"]


def test_accepted_sites_are_replaced_and_not_logged():
    moved = make_work((make_site(90), {}))
    accepted = merged(holding(TWO), (TWO, moved), mode="accept", reason="r")
    assert accepted == holding(TWO, step=moved)


def test_accepted_options_are_replaced_and_logged():
    (wider,) = make_cases(world_sizes=[2], model={**TWO.training.model, "hidden_dim": 48})
    accepted = merged(holding(TWO), (wider, USUAL), mode="accept", reason="wider")
    assert accepted.cases == holding(wider).cases
    assert [entry.cases for entry in accepted.accepted] == [(TWO.id,)]


def test_a_case_that_could_not_be_counted_is_left_alone():
    failed = CountedCase(case=TWO, failure="exited with code 3")
    assert merge_work(holding(TWO), failed, Saving(mode="accept"), date="d") == holding(TWO)


def test_other_cases_of_the_same_options_are_stored_once():
    renamed = msgspec.structs.replace(TWO, id="renamed")
    assert holding(TWO).of(renamed) == holding(TWO).cases[TWO.id]
    assert merged(holding(TWO), (renamed, USUAL)) == holding(TWO)


def test_what_is_only_reported_is_not_stored():
    counted = msgspec.structs.replace(USUAL, reported={"python_calls": 12345})
    assert merged(EMPTY, (TWO, counted)) == holding(TWO)
