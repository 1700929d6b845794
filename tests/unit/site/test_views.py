"""Which cases a site has, and what ends a regression of theirs beside a session that passes."""

from __future__ import annotations

import msgspec
import pytest

from ddp_perf.core.verdict import Outcome
from ddp_perf.history.standing import State
from ddp_perf.history.store import HistoryStore
from ddp_perf.render.model import Status
from ddp_perf.site.views import views_of
from tests.builders import make_case
from tests.recorded_sessions import make_recorded_session

CASE = make_case()
RED = Outcome.REGRESSION


@pytest.fixture
def store(tmp_path):
    store = HistoryStore(f"sqlite:///{tmp_path / 'h.sqlite'}")
    yield store
    store.close()


def append(store, day, outcome=Outcome.PASS, *, case=CASE, suite="quick", value=0.01, injected=()):
    record = make_recorded_session(case, day, value, outcome=outcome)
    info = msgspec.structs.replace(record.info, suite=suite, injections=injected)
    store.append([msgspec.structs.replace(record, info=info)])


def with_figures(case, *figures):
    return msgspec.structs.replace(case, figures=figures)


def test_a_case_of_two_suites_has_a_page_for_each(store):
    append(store, 0, RED, suite="one")
    append(store, 1, suite="two")

    views = views_of(store).cases

    assert [(view.suite, view.standing[0]) for view in views] == [
        ("one", Status.RED),
        ("two", Status.GREEN),
    ]
    assert len({view.file for view in views}) == 2


def test_a_regression_of_a_case_whose_work_changed_has_ended_and_is_kept(store):
    other = make_case(batch_size=128)
    append(store, 0, RED)
    append(store, 1, case=msgspec.structs.replace(other, id=CASE.id))

    (view,) = views_of(store).cases

    assert view.case.work == other.work()
    assert [one.state for one in view.regressions] == [State.ENDED]
    assert view.standing[0] is Status.GREEN


def test_a_regression_of_a_metric_that_is_judged_no_more_has_ended(store):
    red = make_recorded_session(CASE, 0, 0.01, outcome=RED)
    (case,) = red.cases
    tail = msgspec.structs.replace(case.figures[0], metric="tail")
    store.append([msgspec.structs.replace(red, cases=(with_figures(case, tail),))])
    append(store, 0)

    still, *_ = views_of(store).cases
    append(store, 1)
    later, *_ = views_of(store).cases

    assert [one.state for one in still.regressions] == [State.OPEN]
    assert [one.state for one in later.regressions] == [State.ENDED]


def test_a_case_that_its_suite_measures_no_more_is_not_red_for_ever(store):
    other = make_case(batch_size=128)
    append(store, 0, RED)
    append(store, 7, case=msgspec.structs.replace(other, id="other"))

    still = {view.case.case_id: view for view in views_of(store).cases}
    append(store, 16, case=msgspec.structs.replace(other, id="other"))
    later = {view.case.case_id: view for view in views_of(store).cases}

    assert still[CASE.id].standing == (Status.RED, "slower")
    assert later[CASE.id].standing == (Status.UNTESTED, "not measured since 2026-01-01")
    assert later[CASE.id].open == []


def test_a_session_that_was_slowed_on_purpose_is_not_the_newest_verdict(store):
    append(store, 0)
    append(store, 1, RED, injected=("compute:5%",))

    (view,) = views_of(store).cases

    assert view.standing == (Status.GREEN, "PASS")


def test_a_figure_of_zero_is_no_figure(store):
    append(store, 0)
    append(store, 1, value=0.0)

    (view,) = views_of(store).cases

    assert len(view.main.series.sound()) == 1
