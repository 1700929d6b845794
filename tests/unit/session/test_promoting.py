"""A results file is promoted to a baseline by the rules of --save-baseline."""

from __future__ import annotations

import pytest

from ddp_perf.baselines.save import Saved, Saving
from ddp_perf.baselines.store import BaselineStore
from ddp_perf.core.case import Tolerances
from ddp_perf.core.verdict import Outcome
from ddp_perf.errors import BaselineError
from ddp_perf.session.judge_results import promote
from tests.builders import (
    make_acknowledgement,
    make_baseline,
    make_case,
    make_finding,
    make_measurement,
    make_probe,
    make_result,
)

CASE = make_case()
KEY = "cpu-some-2c-host"


@pytest.fixture
def store(tmp_path):
    return BaselineStore(tmp_path)


def make_result_of_session(*step_s, date="2026-01-02T03:04:05+00:00", **changes):
    return make_result([make_measurement(CASE, step_s or (0.01, 0.0101))], date=date, **changes)


def stored(store):
    return store.load(KEY).cases


def test_a_case_without_a_baseline_gets_one(store):
    promoted = promote(make_result_of_session(), store, Saving(mode="missing"))

    assert promoted.saved == {CASE.id: Saved(path=str(store.path(KEY)), mode="missing")}
    assert len(stored(store)[CASE.id].sessions) == 1


@pytest.mark.parametrize("mode", ["missing", "append"])
def test_the_same_session_is_never_stored_twice(store, mode):
    promote(make_result_of_session(), store, Saving(mode="missing"))
    promoted = promote(make_result_of_session(), store, Saving(mode=mode))

    assert promoted.saved == {}
    assert "this session is already stored" in promoted.not_saved[CASE.id].reason
    assert len(stored(store)[CASE.id].sessions) == 1
    assert stored(store)[CASE.id].log == ()


def test_accept_replaces_a_session_that_append_stored_and_begins_the_level_with_it(store):
    for day in range(1, 4):
        promote(make_result_of_session(date=f"2026-01-0{day}"), store, Saving(mode="append"))
    slower = make_result_of_session(0.02, 0.0201, 0.02, date="2026-01-04")
    promote(slower, store, Saving(mode="append"))
    assert stored(store)[CASE.id].sessions[-1].verdicts == {"step_time": Outcome.REGRESSION}

    promoted = promote(slower, store, Saving(mode="accept", reason="meant"))

    assert promoted.saved[CASE.id].mode == "accept"
    accepted = stored(store)[CASE.id]
    assert [s.date for s in accepted.sessions] == [f"2026-01-0{day}" for day in range(1, 5)]
    assert accepted.sessions[-1].verdicts == {}
    assert accepted.history("step_time").levels == (0, 0, 0, 1)
    assert accepted.level("step_time") == pytest.approx(0.02)
    (entry,) = accepted.log
    assert (entry.date, entry.reason) == ("2026-01-04", "meant")
    assert entry.ratio == pytest.approx(0.02 / 0.01005)  # to the session before it


def test_accept_refuses_a_session_that_is_older_than_the_newest_stored_one(store):
    promote(make_result_of_session(date="2026-01-03"), store, Saving(mode="missing"))
    older = make_result_of_session(date="2026-01-02")
    promoted = promote(older, store, Saving(mode="accept", reason="meant"))

    assert promoted.saved == {}
    assert promoted.not_saved[CASE.id].reason.startswith(
        "the session of 2026-01-02 is older than the newest stored one, of 2026-01-03"
    )
    assert stored(store)[CASE.id].log == ()


def test_a_session_that_is_stored_without_its_terms_is_not_stored_twice(store):
    """Only the first five sessions keep their terms."""
    measured = make_measurement(CASE, (0.01, 0.0101), probe=make_probe())
    dates = [f"2026-01-0{day}T03:04:05+00:00" for day in range(1, 7)]
    results = [make_result([measured], date=date) for date in dates]
    for result in results:
        promote(result, store, Saving(mode="append"))
    promoted = promote(results[-1], store, Saving(mode="append"))

    assert "this session is already stored" in promoted.not_saved[CASE.id].reason
    sessions = stored(store)[CASE.id].sessions
    assert [bool(session.terms) for session in sessions] == [True] * 5 + [False]


def test_another_session_is_appended(store):
    promote(make_result_of_session(), store, Saving(mode="missing"))
    promote(make_result_of_session(date="2026-01-03T00:00:00+00:00"), store, Saving(mode="append"))

    assert len(stored(store)[CASE.id].sessions) == 2


def test_promote_refuses_what_save_baseline_refuses(store):
    promoted = promote(make_result_of_session(0.01), store, Saving(mode="missing"))

    assert "one launch has no spread" in promoted.not_saved[CASE.id].reason
    assert stored(store) == {}


def test_promote_leaves_out_what_save_baseline_leaves_out(store):
    promoted = promote(make_result_of_session(0.01, 0.03), store, Saving(mode="missing"))

    assert "too noisy" in promoted.saved[CASE.id].without["step_time"]
    assert stored(store)[CASE.id].level("step_time") is None


def test_a_missing_reading_does_not_prevent_storing_the_others(store):
    case = make_case(tolerances=Tolerances(energy=0.05))
    first, second = (
        make_result([make_measurement(case, (0.01, 0.0101))], date=f"2026-01-0{day}")
        for day in (1, 2)
    )
    promote(first, store, Saving(mode="missing"))
    promoted = promote(second, store, Saving(mode="append"))

    assert promoted.finding(case.id, "energy").verdict.outcome is Outcome.INVALID
    assert promoted.saved[case.id].without == {}
    assert len(stored(store)[case.id].sessions) == 2


def test_a_session_is_judged_by_todays_baseline(store):
    """The session had no baseline on its own day. Today it is red."""
    for day in range(1, 4):
        promote(make_result_of_session(date=f"2026-01-0{day}"), store, Saving(mode="append"))
    finding = make_finding(CASE, Outcome.NO_BASELINE)
    slower = make_result_of_session(0.02, 0.0201, 0.02, date="2026-01-04", findings=(finding,))
    promoted = promote(slower, store, Saving(mode="append"))

    assert promoted.finding(CASE.id, "step_time").verdict.outcome is Outcome.REGRESSION
    assert stored(store)[CASE.id].sessions[-1].verdicts == {"step_time": Outcome.REGRESSION}


def test_sessions_are_appended_only_in_the_order_of_their_dates(store):
    promote(make_result_of_session(date="2026-01-03"), store, Saving(mode="missing"))
    promoted = promote(make_result_of_session(date="2026-01-02"), store, Saving(mode="append"))

    assert promoted.not_saved[CASE.id].reason.startswith(
        "the session of 2026-01-02 is older than the newest stored one, of 2026-01-03"
    )
    assert [session.date for session in stored(store)[CASE.id].sessions] == ["2026-01-03"]


def test_a_session_with_injections_is_refused(store):
    with pytest.raises(BaselineError, match=r"ranks that --ddp-inject slowed .* \(compute:5%\)"):
        promote(make_result_of_session(injections=("compute:5%",)), store, Saving(mode="missing"))


def test_accept_removes_the_acknowledgements_of_the_case(store):
    promote(make_result_of_session(), store, Saving(mode="missing"))
    given = (make_acknowledgement(CASE), make_acknowledgement(CASE, case="another"))
    store.update(
        KEY, lambda now: make_baseline(cases=now.cases, units=now.units, acknowledged=given)
    )
    later = make_result_of_session(0.012, 0.0121, date="2026-01-03T00:00:00+00:00")
    promote(later, store, Saving(mode="accept", reason="known"))

    assert [a.case for a in store.load(KEY).acknowledged] == ["another"]
    assert stored(store)[CASE.id].log[0].reason == "known"
