"""The events of a session: each regression is new, continues and ends in one session alone."""

from __future__ import annotations

import msgspec

from ddp_perf.core.verdict import Outcome
from ddp_perf.history.events import EventKind, events, recorded_events
from tests.builders import make_case
from tests.recorded_sessions import LEVEL, SLOW, make_judged_series, make_recorded_session

GOOD, RED = (LEVEL, Outcome.PASS), (SLOW, Outcome.REGRESSION)
STAYED = (SLOW, Outcome.PASS)
UNDECIDED = (SLOW, Outcome.UNDECIDED)


def told(*sessions, **changes):
    """Return the kinds of the events of each session, each seen at its own end."""
    series = make_judged_series(*sessions, **changes)
    kinds = []
    for number, point in enumerate(series.sessions, 1):
        so_far = msgspec.structs.replace(series, sessions=series.sessions[:number])
        kinds.append(", ".join(one.kind.value for one in events([so_far], point.session)))
    return kinds


def test_a_regression_is_new_continues_once_and_is_fixed():
    assert told(GOOD, RED, RED, RED, GOOD, GOOD) == ["", "new", "continuing", "", "fixed", ""]


def test_a_regression_that_became_the_level_is_accepted():
    assert told(GOOD, RED, STAYED, STAYED) == ["", "new", "accepted", ""]


def test_an_exact_metric_has_ended():
    assert told(GOOD, RED, GOOD, metric="structure") == ["", "new", "ended"]


def test_undecided_sessions_are_no_events_and_hide_none():
    sessions = (GOOD, UNDECIDED, RED, UNDECIDED, RED, UNDECIDED, GOOD)

    assert told(*sessions) == ["", "", "new", "", "continuing", "", "fixed"]


def test_a_second_regression_is_new_again():
    assert told(RED, GOOD, RED, GOOD) == ["new", "fixed", "new", "fixed"]


def test_an_acknowledged_regression_is_no_event_until_it_is_fixed():
    why = {1: "worth it", 2: "worth it"}

    assert told(GOOD, RED, RED, GOOD, acknowledged=why) == ["", "", "", "fixed"]


def test_a_regression_whose_acknowledgement_expired_continues_once():
    why = dict.fromkeys([1, 2, 3], "for this month")

    assert told(GOOD, RED, RED, RED, RED, RED, acknowledged=why)[1:] == [
        *("", "", ""),
        *("continuing", ""),
    ]


def test_a_session_that_was_slowed_on_purpose_has_no_event():
    assert told(GOOD, RED, GOOD, injected=[1]) == ["", "", ""]


def test_the_session_of_another_suite_has_no_event():
    series = make_judged_series(GOOD, RED)
    of_another = msgspec.structs.replace(series.sessions[-1].session, suite="another")

    assert events([series], of_another) == []


# ---- of a store ----


def record(number, outcome, *, case=None, **environment):
    step_s = SLOW if outcome is Outcome.REGRESSION else LEVEL
    return make_recorded_session(
        case or make_case(), number, step_s, outcome=outcome, **environment
    )


def found(store, *records):
    return [(one.kind, one.session.suite, one.case_id) for one in recorded_events(store, records)]


def test_a_session_that_was_appended_twice_has_its_events_once(store):
    before, red = record(0, Outcome.PASS), record(1, Outcome.REGRESSION)
    store.append([before, red])
    store.append([red])

    case = make_case()
    assert found(store, red) == [(EventKind.NEW, case.suite, case.id)]
    assert found(store, before) == []


def test_the_events_of_two_suites_come_together_the_new_ones_first(store):
    one, two = make_case(id="a", suite="one"), make_case(id="b", suite="two")
    store.append([record(0, Outcome.REGRESSION, case=one), record(0, Outcome.PASS, case=two)])
    tonight = [record(1, Outcome.PASS, case=one), record(1, Outcome.REGRESSION, case=two)]
    store.append(tonight)

    assert [kind.value for kind, *_ in found(store, *tonight)] == ["new", "ended"]
    assert found(store, tonight[0]) == [(EventKind.ENDED, "one", "a")]


def test_a_session_of_another_machine_has_its_own_events(store):
    store.append([record(0, Outcome.REGRESSION)])
    other = record(1, Outcome.REGRESSION, accelerator_key="cpu-another-2c-host", host="another")
    store.append([other])

    assert [kind for kind, *_ in found(store, other)] == [EventKind.NEW]
