"""An appended session is stored once, and is read as it was measured."""

from __future__ import annotations

import contextlib

import msgspec
import pytest

from ddp_perf.core.verdict import Outcome
from ddp_perf.history.store import HistoryStore, chunks_of
from tests.audits import make_audit
from tests.builders import make_case, make_cases
from tests.recorded_sessions import make_recorded_session


def sessions_of(store, metric="step_time"):
    return [session for case in store.cases() for session in store.series(case, metric).sessions]


def with_launches(record, *launches, verdict=None):
    """Return the record with other launches in its only figure."""
    (case,) = record.cases
    figure = msgspec.structs.replace(
        case.figures[0], launches=launches, value=launches[-1], verdict=verdict
    )
    return msgspec.structs.replace(
        record, cases=(msgspec.structs.replace(case, figures=(figure,)),)
    )


def test_session_is_read_as_it_was_appended(store):
    record = make_recorded_session(make_case(), 3, 0.0125, outcome=Outcome.SUSPECT)

    assert store.append([record]) == 1

    (case,) = store.cases()
    assert (case.accelerator, case.case_id) == ("cpu-some-2c-host", record.cases[0].case_id)
    assert case.work == record.cases[0].work
    (session,) = store.series(case, "step_time").sessions
    assert session.session == record.info
    assert session.figure == record.cases[0].figures[0]


def test_sessions_are_returned_oldest_first(store):
    for number in (2, 0, 1):
        store.append([make_recorded_session(make_case(), number, 0.01)])

    dates = [session.session.date[:10] for session in sessions_of(store)]
    assert dates == ["2026-01-01", "2026-01-02", "2026-01-03"]


def test_appending_again_changes_nothing(store):
    records = [make_recorded_session(make_case(), number, 0.01) for number in range(3)]
    store.append(records)
    before = sessions_of(store)

    assert store.append(records) == 0
    assert store.append(records[1:2]) == 0

    assert sessions_of(store) == before


def test_session_given_twice_in_one_call_is_stored_once(store):
    record = make_recorded_session(make_case(), 0, 0.01)

    assert store.append([record, record]) == 1

    assert len(sessions_of(store)) == 1


@pytest.mark.parametrize(
    ("first", "second", "kept"),
    [
        pytest.param((0.1, 0.2), (0.1, 0.2, 0.3), 3, id="more launches"),
        pytest.param((0.1, 0.2, 0.3), (0.1, 0.2), 3, id="fewer launches"),
    ],
)
def test_more_launches_replace_fewer_and_never_the_reverse(store, first, second, kept):
    record = make_recorded_session(make_case(), 0, 0.01)
    for launches in (first, second):
        store.append([with_launches(record, *launches)])

    (session,) = sessions_of(store)
    assert len(session.figure.launches) == kept


def test_verdict_is_added_to_launches_without_one(store):
    judged = make_recorded_session(make_case(), 0, 0.01)
    verdict = judged.cases[0].figures[0].verdict
    store.append([with_launches(judged, 0.1, 0.2)])
    store.append([with_launches(judged, 0.1, 0.2, verdict=verdict)])
    store.append([with_launches(judged, 0.1, 0.2)])

    (session,) = sessions_of(store)
    assert session.figure.verdict == verdict


def test_a_later_verdict_on_the_same_launches_replaces_the_earlier_one(store):
    first, later = (
        make_recorded_session(make_case(), 0, 0.01, outcome=outcome)
        for outcome in (Outcome.UNDECIDED, Outcome.REGRESSION)
    )
    store.append([first])
    store.append([later])

    (session,) = sessions_of(store)
    assert session.figure.verdict.outcome is Outcome.REGRESSION


def test_sessions_of_two_hosts_in_one_second_are_separate(store):
    for host in ("one", "two"):
        assert store.append([make_recorded_session(make_case(), 0, 0.01, host=host)]) == 1

    assert {session.session.environment.host for session in sessions_of(store)} == {"one", "two"}


def test_other_work_and_other_machines_have_their_own_series(store):
    case = make_case()
    store.append([make_recorded_session(case, 0, 0.01)])
    store.append([make_recorded_session(msgspec.structs.replace(case, batch_size=128), 1, 0.02)])
    store.append([make_recorded_session(case, 2, 0.03, accelerator_key="h200")])

    assert [(c.accelerator, c.work["batch_size"]) for c in store.cases()] == [
        ("cpu-some-2c-host", 64),
        ("cpu-some-2c-host", 128),
        ("h200", 64),
    ]
    assert [len(store.series(case, "step_time").sessions) for case in store.cases()] == [1, 1, 1]


def test_metric_that_was_never_measured_has_no_sessions(store):
    store.append([make_recorded_session(make_case(), 0, 0.01)])

    assert sessions_of(store, "peak_memory") == []


def test_session_is_visible_to_another_connection(store, url):
    store.append([make_recorded_session(make_case(), 0, 0.01)])

    with contextlib.closing(HistoryStore(url, create=False)) as other:
        assert len(sessions_of(other)) == 1


def test_markup_and_quotes_in_a_name_are_plain_text(store):
    name = "mlp-[bold red]<script>'; DROP TABLE figures;--"
    store.append([make_recorded_session(make_case(id=name), 0, 0.01)])

    assert [case.case_id for case in store.cases()] == [name]


def test_chunks_contain_every_item_in_order():
    assert list(chunks_of(range(5), 2)) == [[0, 1], [2, 3], [4]]
    assert list(chunks_of([], 2)) == []


@pytest.mark.parametrize("first", [25, 25.0])
def test_a_number_of_the_work_may_be_whole_or_a_float(store, first):
    """A results file has floats where the session that wrote it may have whole numbers."""
    for number, value in enumerate((first, 25, 25.0, 26)):
        record = make_recorded_session(make_case(), number, 0.01)
        (case,) = record.cases
        case = msgspec.structs.replace(case, work={**case.work, "ddp.bucket_cap_mb": value})
        store.append([msgspec.structs.replace(record, cases=(case,))])

    assert [len(store.series(case, "step_time").sessions) for case in store.cases()] == [3, 1]


def test_sessions_join_the_case_of_an_older_store_that_has_a_float(store, url, database):
    record = make_recorded_session(make_case(), 0, 0.01)
    store.append([record])
    with database.writing() as connection:
        older = "UPDATE cases SET work = replace(work, '_mb\":25', '_mb\":25.0')"
        assert connection.exec_driver_sql(older).rowcount == 1

    with contextlib.closing(HistoryStore(url)) as again:
        again.append([make_recorded_session(make_case(), 1, 0.01)])
        (case,) = again.cases()
        assert len(again.series(case, "step_time").sessions) == 2


def test_an_audit_is_read_as_it_was_appended_and_stored_once(store):
    audits = [make_audit(0.0, day=2, ratio=None, interval=None), make_audit(0.031, day=3)]
    for audit in (*reversed(audits), audits[0]):
        store.append_audit(audit)

    assert store.audits() == audits
    assert store.cases() == []  # it is no session


def test_records_are_what_was_appended_oldest_first(store):
    one, two = make_cases()
    older, newer = (make_recorded_session(one, number, 0.01) for number in range(2))
    other = make_recorded_session(two, 1, 0.02)
    by_id = (*other.cases, *newer.cases)
    newer = msgspec.structs.replace(newer, cases=by_id)
    empty = msgspec.structs.replace(make_recorded_session(one, 2, 0.01), cases=())
    store.append([empty, newer, older])

    assert store.records() == [older, newer, empty]
