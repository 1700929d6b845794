"""The tables of a session: of what failed, of its worst verdict, and of what it stored."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ddp_perf.baselines.save import Refused, Saved
from ddp_perf.core.note import NoteKind
from ddp_perf.core.target import Target
from ddp_perf.core.verdict import Culprit, Outcome, Settled
from ddp_perf.report.next_steps import session
from tests.builders import (
    make_cases,
    make_excuse,
    make_failure,
    make_finding,
    make_measurement,
    make_result,
)

ONE, TWO = make_cases()
JANUARY = "2026-01-01T10:00:00+00:00"
TARGET = Target(figure="efficiency", bound=0.85, unit="", file="bench_configs/x.yaml")
SETTLED = Settled(reference=JANUARY, label="the session of 2026-01-01", commit="0123abcd", pairs=12)
CULPRIT = Culprit(
    kind="commit", name="5" * 40, probability=0.98, launches=9, seconds=30.0, why="launches"
)
STRUCTURES = {ONE.id: "s/a.json", TWO.id: "s/a.json"}
OTHER_CLOCK = make_excuse("GPU clock 1,200 MHz", NoteKind.OTHER_CLOCK)


def result(*findings, launches=3, failed=(), **changes):
    cases = (replace(one, schedule=replace(one.schedule, launches=launches)) for one in (ONE, TWO))
    measured = (make_measurement(case, [0.01] * launches) for case in cases)
    failures = {case.id: (make_failure(case),) for case in failed}
    fields = {
        "findings": findings,
        "command": "./ci/bench --ddp-steps 50",
        "commands": {TWO.id: "pytest 'test_perf.py::test_step_time[two]'"},
    }
    return make_result(
        [replace(one, failures=failures.get(one.case.id, ())) for one in measured],
        **{**fields, **changes},
    )


def found(outcome, case=TWO, **changes):
    return make_finding(case, outcome, **changes)


def undecided(**changes):
    return result(found(Outcome.UNDECIDED, **{"sessions": 8, "launches": 5, **changes}))


def of_target(outcome, **changes):
    return result(found(outcome, target=TARGET, **changes))


def refused(outcome=Outcome.NO_BASELINE, cause=None, mode="append", **changes):
    """Return a session whose case was to be stored, and was not."""
    not_saved = {TWO.id: Refused(reason="because", cause=cause)}
    return result(found(outcome), save_mode=mode, not_saved=not_saved, **changes)


def saved(*findings, mode="append", command="pytest --save-baseline", **changes):
    stored = {TWO.id: Saved(path="p", mode=mode, **changes)}
    return result(*findings, save_mode=mode, saved=stored, command=command)


def settled(outcome=Outcome.REGRESSION, metric="step_time", **changes):
    """Return a session whose case was settled beside a commit, or could not be."""
    date = JANUARY if metric == "step_time" else None
    one = found(outcome, metric=metric, baseline_date=date)
    return result(one, settled={TWO.id: replace(SETTLED, **changes)})


SLOWER = found(Outcome.REGRESSION, baseline_date=JANUARY)
NEW, INCOMPARABLE = found(Outcome.NO_BASELINE), found(Outcome.INCOMPARABLE)
WAITING = found(Outcome.UNDECIDED, sessions=1, assumed_sd=0.03, baseline_date=JANUARY[:16])
ROWS = {  # in the order of the rules
    "slowed on purpose": result(SLOWER, failed=[TWO], injections=("compute:5%",)),
    "slowed, and never measured": result(SLOWER, injections=("compute:5%",), summaries={}),
    "failed": result(SLOWER, failed=[TWO]),
    "failed ddp-perf try": result(failed=[ONE], command=""),
    "not accepted": refused(Outcome.IMPROVEMENT, mode="accept"),
    "new, and not accepted": refused(mode="accept"),
    "unannounced": refused(cause="unannounced"),
    "more work": refused(cause="other work"),
    "one launch": refused(launches=1, saved_structures=STRUCTURES),
    "busy machine": refused(cause="machine"),
    "busy for one metric": saved(NEW, without={"step_time": "busy"}),
    "not fit to be stored": refused(),
    "new": result(NEW),
    "new metric": result(
        found(Outcome.PASS, sessions=4), found(Outcome.NO_BASELINE, metric="tail")
    ),
    "other work": result(INCOMPARABLE),
    "other work in all cases": result(found(Outcome.INCOMPARABLE, ONE), INCOMPARABLE),
    "other work beside a new case": result(
        found(Outcome.NO_BASELINE, ONE, metric="structure"), INCOMPARABLE
    ),
    "other work beside an equal case": result(
        found(Outcome.PASS, ONE, metric="structure"), INCOMPARABLE
    ),
    "more structure": settled(metric="structure"),
    "other structure": undecided(metric="structure"),
    "loss not finite": settled(metric="loss"),
    "losses that differ": result(found(Outcome.INVALID, metric="loss")),
    "settled to a commit": settled(searched=True, culprit=CULPRIT),
    "settled and searched": settled(searched=True),
    "settled": settled(),
    "not settled in 60 s": settled(Outcome.UNDECIDED, needed_s=61),
    "not settled, suspect": settled(Outcome.SUSPECT, needed_s=300),
    "not settled, stored": replace(
        settled(Outcome.INVALID, needed_s=300),
        save_mode="append",
        command="pytest --ddp-settle=60s --save-baseline=append",  # the last time counts
    ),
    "slower": result(SLOWER),
    "slower, and cannot be settled": settled(commit=None),
    "target missed": of_target(Outcome.MISSES_TARGET),
    "nodes open": undecided(metric="nodes", more_launches=3),
    "target without a figure": of_target(Outcome.INVALID),
    "bad node": result(found(Outcome.BAD_NODE, metric="nodes")),
    "other clock": result(found(Outcome.INVALID, notes=OTHER_CLOCK)),
    "disturbed": result(found(Outcome.INVALID)),
    "disturbed at its target": of_target(Outcome.INVALID, notes=make_excuse("busy")),
    "suspect": result(found(Outcome.SUSPECT, more_launches=4)),
    "11 launches open": undecided(more_launches=4, likely_launches=11),
    "4 launches open": undecided(more_launches=4, more_sessions=2, target=TARGET),
    "sessions open": undecided(more_sessions=2),
    "waiting": undecided(sessions=2, assumed_sd=0.03, more_launches=4),
    "waiting for a half-day": result(WAITING),
    "waiting, appends by itself": saved(WAITING, command="./ci/bench", beside=JANUARY),
    "near a target": of_target(Outcome.UNDECIDED),
    "undecided": undecided(),
    "stored": saved(NEW, mode="missing"),
    "structures stored": result(
        found(Outcome.NO_BASELINE, metric="structure"),
        launches=1,
        save_mode="missing",
        saved_structures=STRUCTURES,
        not_saved={TWO.id: Refused(reason="one launch has no spread")},
    ),
    "structures stored beside a session": result(
        saved={TWO.id: Saved(path="p", mode="append")},
        save_mode="append",
        saved_structures=STRUCTURES,
    ),
    "forming": result(found(Outcome.PASS, sessions=4), found(Outcome.PASS, ONE, sessions=3)),
    "forming, one launch": result(found(Outcome.PASS, sessions=3), launches=1),
    "formed": result(found(Outcome.PASS, sessions=5)),
    "faster": result(found(Outcome.IMPROVEMENT)),
    "target met": of_target(Outcome.MEETS_TARGET),
    "no test": result(SLOWER, asserted={}),
}


def test_the_first_rule_that_applies_decides(check):
    tables = ("FAILED", "VERDICT", "STORED")
    check(ROWS, lambda suite: session.after_session([suite]), session, *tables)


@pytest.mark.parametrize("outcome", Outcome)
def test_a_verdict_is_green_or_has_a_command(outcome):
    green = (Outcome.PASS, Outcome.IMPROVEMENT, Outcome.MEETS_TARGET)

    assert (session.after_session([of_target(outcome)]) is None) == (outcome in green)


@pytest.mark.parametrize(
    ("suites", "urgent"),
    [
        ([result(WAITING), result(found(Outcome.PASS, ONE), SLOWER)], SLOWER),
        ([result(WAITING), result(INCOMPARABLE)], INCOMPARABLE),
        ([result(found(Outcome.REGRESSION, ONE, metric="structure"), SLOWER)], SLOWER),
    ],
)
def test_the_most_urgent_verdict_of_all_suites_gives_the_step(suites, urgent):
    assert session.after_session(suites) == session.after_session([result(urgent)])


@pytest.mark.parametrize("option", ["", " append", "=append"])
def test_a_command_says_once_what_it_stores(option):
    command = f"pytest --save-baseline{option} -m 'perf and cpu'"
    suite = result(WAITING, command=command, save_mode="append")

    step = session.after_session([suite])

    assert step.command == "pytest -m 'perf and cpu' --save-baseline=append"
