"""Which terms changed: worked examples, and what cannot be told."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddp_perf.core.decomposition import TERMS
from ddp_perf.stats.step.attribution import attribute

JITTER = (1.0, 1.01, 0.99, 1.005, 0.995)


def session(step=None, **terms):
    """Five launches, each term 1 ms but those given, with one per cent of noise."""
    rows = []
    for factor in JITTER:
        row = {term: terms.get(term, 0.001) * factor for term in TERMS}
        rows.append({**row, "step": sum(row.values()) if step is None else step * factor})
    return rows


@pytest.mark.parametrize(
    ("term", "group"),
    [
        ("data", "data"),
        ("forward", "compute"),
        ("backward", "compute"),
        ("optimizer", "compute"),
        ("idle", "idle"),
        ("imbalance", "imbalance"),
        ("exposed", "unhidden"),
        ("interference", "unhidden"),
    ],
)
def test_the_term_that_grew_is_named_with_its_size(term, group):
    found = attribute(session(**{term: 0.003}), [session(), session()])
    (changed,) = found.groups
    assert changed.name == group
    assert changed.change == pytest.approx(0.002)
    assert found.step.change == pytest.approx(0.002)


def test_two_that_grew_are_both_named_the_larger_first():
    found = attribute(session(data=0.002, imbalance=0.004), [session()])
    assert [group.name for group in found.groups] == ["imbalance", "data"]


def test_terms_that_grew_and_shrank_are_told_with_their_sign():
    found = attribute(session(exposed=0.006, backward=0.0), [session()])
    assert {group.name: round(group.change * 1e3, 6) for group in found.groups} == {
        "unhidden": 5,
        "compute": -1,
    }


def test_what_no_term_holds_is_unexplained():
    found = attribute(session(step=0.013), [session()])
    (changed,) = found.groups
    assert changed.name == "unexplained"
    assert changed.change == pytest.approx(0.005)


def test_nothing_changed_names_nothing():
    assert attribute(session(), [session()]).groups == ()


@pytest.mark.parametrize("sessions_with_it", [0, 1])
def test_a_figure_that_few_sessions_hold_breaks_nothing(sessions_with_it):
    """As of a baseline from before it was kept, and a session appended since."""
    now = [{**row, "lag": 0.005 * factor} for row, factor in zip(session(), JITTER, strict=True)]
    sessions = [session(), session(), session()]
    sessions[:sessions_with_it] = [now] * sessions_with_it
    assert set(attribute(now, sessions, beside=["lag"]).beside) == (
        {"lag"} if sessions_with_it else set()
    )


def test_a_few_launches_that_differ_make_a_count_uncertain():
    retries = (0.0, 0.0, 0.0, 0.05, 0.0)
    now = [{**row, "retries": more} for row, more in zip(session(), retries, strict=True)]
    before = [{**row, "retries": 0.0} for row in session()]
    found = attribute(now, [before, before], beside=["retries"])
    assert not found.beside["retries"].is_certain
    assert found.beside["retries"].uncertainty > 0


def test_one_launch_explains_nothing():
    assert attribute(session(data=0.005)[:1], [session()]) is None


def test_sessions_that_differ_make_a_change_uncertain():
    sessions = [session(data=seconds) for seconds in (0.001, 0.004, 0.002, 0.005, 0.003)]
    found = attribute(session(data=0.0045), sessions)
    assert "data" not in [group.name for group in found.groups]


def test_a_disturbed_launch_hides_nothing():
    now = session(data=0.003)
    now[2] = {**now[2], "idle": 0.5, "step": 0.51}
    found = attribute(now, [session()])
    assert [group.name for group in found.groups] == ["data"]


def test_without_rows_there_is_nothing_to_say():
    assert attribute([], [session()]) is None
    assert attribute(session(), []) is None
    assert attribute(session(), [[]]) is None


def test_a_figure_that_a_side_lacks_has_no_change():
    with_it = [{**row, "communication": 0.005} for row in session()]
    assert attribute(with_it, [session()], beside=["communication"]).beside == {}
    found = attribute(with_it, [with_it, session()], beside=["communication"])
    assert found.beside["communication"].change == 0


def test_a_steadier_figure_witnesses_that_a_group_changed():
    """Ranks that come late in turn hide how much one of them lags."""
    sessions = [
        [{**row, "lag": 0.001} for row in session(imbalance=seconds)]
        for seconds in (0.002, 0.006, 0.004)
    ]

    def groups(lag, **beside):
        now = [{**row, "lag": lag} for row in session(imbalance=0.007)]
        return attribute(now, sessions, **beside).groups

    assert groups(0.004) == ()
    (changed,) = groups(0.004, beside=["lag"])
    assert changed.name == "imbalance"
    assert not changed.is_certain
    assert groups(0.002, beside=["lag"]) == ()  # it grew, but by too little to be the cause


def test_a_group_that_is_known_to_have_grown_needs_no_certain_size():
    sessions = [session(exposed=seconds) for seconds in (0.002, 0.006, 0.004)]
    now = session(exposed=0.007, data=0.005)
    assert [group.name for group in attribute(now, sessions).groups] == ["data"]
    (larger, smaller) = attribute(now, sessions, known=["unhidden"]).groups
    assert (larger.name, smaller.name) == ("data", "unhidden")
    fewer = attribute(session(exposed=0.003, data=0.005), sessions, known=["unhidden"])
    assert [group.name for group in fewer.groups] == ["data"]


def test_where_nothing_is_certain_the_largest_is_likely():
    sessions = [session(forward=seconds) for seconds in (0.001, 0.003, 0.002)]
    found = attribute(session(forward=0.005), sessions)
    assert found.groups == ()
    assert found.likely.name == "compute"
    assert attribute(session(forward=0.004), [session()]).likely is None


@pytest.mark.parametrize(("drift", "named"), [(0.001, ["imbalance"]), (0.02, [])])
def test_sessions_of_one_case_tell_together_how_much_sessions_differ(drift, named):
    """Three sessions alike by chance make no term certain where others show them to differ."""
    sessions = [
        session(step=0.01, **dict.fromkeys(TERMS, 0.001 * factor) | {"imbalance": 0.001 * alike})
        for factor, alike in zip((1 - drift, 1 + drift, 1.0), (1.0, 1.004, 0.996), strict=True)
    ]
    found = attribute(session(step=0.01, imbalance=0.00104), sessions)
    assert [group.name for group in found.groups if group.name == "imbalance"] == named


@given(st.lists(st.floats(0, 0.01), min_size=len(TERMS), max_size=len(TERMS)))
def test_groups_and_what_is_unexplained_are_the_change_of_the_step(extra):
    grown = {term: 0.001 + more for term, more in zip(TERMS, extra, strict=True)}
    found = attribute(session(**grown), [session()])
    changes = {term.name: term.change for term in found.terms}
    assert sum(changes.values()) == pytest.approx(found.step.change, abs=1e-9)
    assert "unexplained" not in [group.name for group in found.groups]
