"""The attribution of a change to terms: worked examples, and what remains uncertain."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddp_perf.core.decomposition import TERMS
from ddp_perf.stats.step_change import attribute

JITTER = (1.0, 1.01, 0.99, 1.005, 0.995)


def session(step=None, **terms):
    """Return five launches; each term is 1 ms except those given, with one per cent of noise."""
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


def test_two_grown_terms_are_both_named_the_larger_first():
    found = attribute(session(data=0.002, imbalance=0.004), [session()])
    assert [group.name for group in found.groups] == ["imbalance", "data"]


def test_changes_of_terms_have_their_sign():
    found = attribute(session(exposed=0.006, backward=0.0), [session()])
    assert {group.name: round(group.change * 1e3, 6) for group in found.groups} == {
        "unhidden": 5,
        "compute": -1,
    }


def test_change_outside_all_terms_is_unexplained():
    found = attribute(session(step=0.013), [session()])
    (changed,) = found.groups
    assert changed.name == "unexplained"
    assert changed.change == pytest.approx(0.005)


def test_attribution_names_no_group_if_nothing_changed():
    assert attribute(session(), [session()]).groups == ()


@pytest.mark.parametrize("sessions_with_it", [0, 1])
def test_attribution_works_if_few_sessions_have_a_figure(sessions_with_it):
    """The baseline is older than the figure, and one session was appended since."""
    now = [{**row, "lag": 0.005 * factor} for row, factor in zip(session(), JITTER, strict=True)]
    sessions = [session(), session(), session()]
    sessions[:sessions_with_it] = [now] * sessions_with_it
    assert set(attribute(now, sessions, beside=["lag"]).beside) == (
        {"lag"} if sessions_with_it else set()
    )


def test_a_few_different_launches_make_a_count_uncertain():
    retries = (0.0, 0.0, 0.0, 0.05, 0.0)
    now = [{**row, "retries": more} for row, more in zip(session(), retries, strict=True)]
    before = [{**row, "retries": 0.0} for row in session()]
    found = attribute(now, [before, before], beside=["retries"])
    assert not found.beside["retries"].is_certain
    assert found.beside["retries"].uncertainty > 0


def test_attribution_is_none_with_one_launch():
    assert attribute(session(data=0.005)[:1], [session()]) is None


def test_sessions_that_differ_make_a_change_uncertain():
    sessions = [session(data=seconds) for seconds in (0.001, 0.004, 0.002, 0.005, 0.003)]
    found = attribute(session(data=0.0045), sessions)
    assert "data" not in [group.name for group in found.groups]


def test_a_disturbed_launch_does_not_hide_a_change():
    now = session(data=0.003)
    now[2] = {**now[2], "idle": 0.5, "step": 0.51}
    found = attribute(now, [session()])
    assert [group.name for group in found.groups] == ["data"]


def test_attribution_is_none_without_rows():
    assert attribute([], [session()]) is None
    assert attribute(session(), []) is None
    assert attribute(session(), [[]]) is None


def test_a_figure_missing_on_one_side_has_no_change():
    with_it = [{**row, "communication": 0.005} for row in session()]
    assert attribute(with_it, [session()], beside=["communication"]).beside == {}
    found = attribute(with_it, [with_it, session()], beside=["communication"])
    assert found.beside["communication"].change == 0


def test_a_steadier_figure_confirms_the_change_of_a_group():
    """Ranks that are late in turn hide how much one of them lags."""
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


def test_a_group_known_to_have_grown_needs_no_certain_size():
    sessions = [session(exposed=seconds) for seconds in (0.002, 0.006, 0.004)]
    now = session(exposed=0.007, data=0.005)
    assert [group.name for group in attribute(now, sessions).groups] == ["data"]
    (larger, smaller) = attribute(now, sessions, known=["unhidden"]).groups
    assert (larger.name, smaller.name) == ("data", "unhidden")
    fewer = attribute(session(exposed=0.003, data=0.005), sessions, known=["unhidden"])
    assert [group.name for group in fewer.groups] == ["data"]


def test_the_largest_group_is_likely_if_no_change_is_certain():
    sessions = [session(forward=seconds) for seconds in (0.001, 0.003, 0.002)]
    found = attribute(session(forward=0.005), sessions)
    assert found.groups == ()
    assert found.likely.name == "compute"
    assert attribute(session(forward=0.004), [session()]).likely is None


@pytest.mark.parametrize(("drift", "named"), [(0.001, ["imbalance"]), (0.02, [])])
def test_the_figures_of_a_case_share_the_spread_of_its_sessions(drift, named):
    """Three sessions equal by chance make no term certain if others show that sessions differ."""
    sessions = [
        session(step=0.01, **dict.fromkeys(TERMS, 0.001 * factor) | {"imbalance": 0.001 * alike})
        for factor, alike in zip((1 - drift, 1 + drift, 1.0), (1.0, 1.004, 0.996), strict=True)
    ]
    found = attribute(session(step=0.01, imbalance=0.00104), sessions)
    assert [group.name for group in found.groups if group.name == "imbalance"] == named


@given(st.lists(st.floats(0, 0.01), min_size=len(TERMS), max_size=len(TERMS)))
def test_groups_and_the_unexplained_part_add_up_to_the_change_of_the_step(extra):
    grown = {term: 0.001 + more for term, more in zip(TERMS, extra, strict=True)}
    found = attribute(session(**grown), [session()])
    changes = {term.name: term.change for term in found.terms}
    assert sum(changes.values()) == pytest.approx(found.step.change, abs=1e-9)
    assert "unexplained" not in [group.name for group in found.groups]
