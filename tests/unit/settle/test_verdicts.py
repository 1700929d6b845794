"""The verdicts after the second stage: by pairs, or since nothing changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddp_perf.core.measurement import Known
from ddp_perf.core.verdict import DuelOutcome, Outcome
from ddp_perf.duel.case_run import figures_of
from ddp_perf.settle.references import Changed, Reference
from ddp_perf.settle.settled_suite import (
    is_settleable,
    machine_texts,
    settled_verdicts,
    suspicion_of,
    unchanged_verdict,
)
from ddp_perf.system.git import CodeState
from tests.builders import (
    make_acknowledgement,
    make_case,
    make_environment,
    make_excuse,
    make_finding,
)
from tests.duels import make_case_duel, make_metric_duel, make_pairs

CASE = make_case()
REFERENCE = Reference(
    date="2026-01-02T03:04:05+00:00",
    state=CodeState(commit="0123456789ab", tree="t1"),
    environment=make_environment(),
    patch=Path("t1.patch"),
)
LABEL = "the session of 2026-01-02 (01234567)"
UNCHANGED = Changed(code=(), software=(), machine=())
OPEN = (Outcome.UNDECIDED, Outcome.SUSPECT, Outcome.INVALID)
COMPARED = (*OPEN, Outcome.PASS, Outcome.IMPROVEMENT, Outcome.REGRESSION)
OTHERS = sorted({*Outcome} - {*COMPARED})


def finding(outcome, **changes):
    return make_finding(CASE, outcome, **{"tolerance": 0.05, **changes})


def expected(**changes):
    """A regression that somebody acknowledged."""
    known = Known(acknowledgement=make_acknowledgement(CASE), state="expected")
    return finding(Outcome.REGRESSION, known=known, **changes)


def test_the_label_names_the_day_and_the_commit():
    assert REFERENCE.label == LABEL


def test_pairs_cannot_decide_what_this_machine_has_no_counter_for():
    assert not is_settleable(finding(Outcome.INVALID, metric="energy", value=None))
    assert is_settleable(finding(Outcome.INVALID, metric="energy", value=2.0))


@pytest.mark.parametrize("outcome", COMPARED)
def test_compared_outcomes_of_metrics_of_launches_can_be_settled(outcome):
    assert is_settleable(finding(outcome))
    assert not is_settleable(finding(outcome, metric="structure"))
    assert not is_settleable(finding(outcome, metric="loss"))


@pytest.mark.parametrize("outcome", OTHERS)
def test_what_is_compared_with_nothing_cannot_be_settled(outcome):
    assert not is_settleable(finding(outcome))
    assert suspicion_of([finding(outcome, ratio=1.5)]) is None


def test_an_acknowledged_regression_is_left_alone():
    known = expected(ratio=1.2, interval=(1.1, 1.3))

    assert not is_settleable(known)
    assert suspicion_of([known]) is None
    assert unchanged_verdict(known, REFERENCE, UNCHANGED) is known
    duel = make_case_duel(DuelOutcome.EQUIVALENT)
    assert settled_verdicts([known], duel, figures_of(duel), LABEL) == [known]
    assert machine_texts([known], UNCHANGED) == ()


def test_the_most_suspicious_finding_of_a_case_counts():
    mild = finding(Outcome.UNDECIDED, ratio=1.01, interval=(0.9, 1.15), upper=1.2)
    red = finding(Outcome.REGRESSION, ratio=1.2, interval=(1.1, 1.3))
    clear = finding(Outcome.PASS, ratio=1.0, interval=(0.99, 1.01), upper=1.01)

    assert suspicion_of([clear]) is None
    assert 0 < suspicion_of([clear, mild]) < 0.5
    assert suspicion_of([mild, red]) == suspicion_of([red]) > 1
    assert suspicion_of([]) is None
    assert suspicion_of([finding(Outcome.REGRESSION, tolerance=None)]) is None


@pytest.mark.parametrize("outcome", OPEN)
def test_unchanged_code_that_is_undecided_passes(outcome):
    before = finding(
        outcome,
        ratio=1.03,
        more_launches=4,
        likely_launches=9,
        more_sessions=2,
        chance=0.1,
        notes=make_excuse("other processes"),
    )

    after = unchanged_verdict(before, REFERENCE, UNCHANGED)

    assert after.verdict.outcome is Outcome.PASS
    assert after.reason == f"code, packages and options are those of {LABEL}"
    assert (after.verdict.ratio, after.verdict.more_launches, after.verdict.chance) == (
        *(1.03, None, None),
    )
    assert (after.by_itself, after.excuse) == (outcome, None)


@pytest.mark.parametrize("outcome", [Outcome.PASS, Outcome.IMPROVEMENT, *OTHERS])
def test_unchanged_code_keeps_every_other_verdict(outcome):
    before = finding(outcome)

    assert unchanged_verdict(before, REFERENCE, UNCHANGED) is before


@pytest.mark.parametrize("metric", ["structure", "loss"])
@pytest.mark.parametrize("outcome", [Outcome.REGRESSION, *OPEN])
def test_exact_metrics_of_unchanged_code_keep_their_verdicts(metric, outcome):
    """The machine does not change what a step does: something else did."""
    before = finding(outcome, metric=metric)

    assert unchanged_verdict(before, REFERENCE, UNCHANGED) is before


def test_unchanged_code_that_is_red_by_itself_stays_red_and_names_the_machine():
    before = finding(Outcome.REGRESSION, ratio=1.2, reason="20 % slower")
    changed = Changed(code=(), software=(), machine=("driver 570 → 575",))

    after = unchanged_verdict(before, REFERENCE, changed)

    assert after.verdict.outcome is Outcome.REGRESSION
    assert after.reason == (
        f"code, packages and options are those of {LABEL}, so the machine got slower"
        " (driver 570 → 575); 20 % slower"
    )
    assert after.by_itself is Outcome.REGRESSION
    assert "()" not in unchanged_verdict(before, REFERENCE, UNCHANGED).reason


@pytest.mark.parametrize("by_itself", [*OPEN, Outcome.PASS])
def test_unchanged_code_that_is_red_only_since_earlier_sessions_is_mended(by_itself):
    before = finding(Outcome.REGRESSION, by_itself=by_itself, reason="slower since yesterday")

    after = unchanged_verdict(before, REFERENCE, UNCHANGED)

    assert after.verdict.outcome is Outcome.PASS
    assert after.by_itself is by_itself


def test_what_of_unchanged_code_seems_slower_is_the_machines():
    changed = Changed(code=(), software=(), machine=("kernel 6.1 → 6.6",))
    findings = [
        finding(Outcome.PASS, ratio=1.03),
        finding(Outcome.PASS, ratio=1.02, metric="tail"),
        finding(Outcome.REGRESSION, ratio=1.2, metric="cpu_time"),
        finding(Outcome.REGRESSION, ratio=1.2, metric="loss"),
        finding(Outcome.INVALID, metric="peak_memory"),
    ]

    assert machine_texts(findings, changed) == (
        *("step time +3.0 %", "CPU time of a step +20.0 %", "kernel 6.1 → 6.6"),
    )


def settle(before, paired, *, steps=None, metric="step_time", **changes):
    """Return the outcome after pairs with the outcome ``paired``."""
    verdict = {name: changes.pop(name) for name in ("ratio", "interval") if name in changes}
    duel = make_case_duel(
        paired,
        metrics=(make_metric_duel(CASE, paired, metric=metric, **verdict, **changes),),
        pairs=make_pairs(CASE, steps or [(0.01, 0.02), (0.02, 0.01)] * 2),
    )
    (after,) = settled_verdicts([before], duel, figures_of(duel), LABEL)
    return after


@pytest.mark.parametrize("before", COMPARED)
@pytest.mark.parametrize(
    ("paired", "ratio", "interval", "after"),
    [
        (DuelOutcome.EQUIVALENT, 1.0, (0.98, 1.02), Outcome.PASS),
        (DuelOutcome.FASTER, 0.9, (0.88, 0.92), Outcome.IMPROVEMENT),
        (DuelOutcome.SLOWER, 1.1, (1.08, 1.12), Outcome.REGRESSION),
        (DuelOutcome.SLOWER, 1.05, (1.01, 1.2), Outcome.REGRESSION),
        (DuelOutcome.SLOWER, 1.03, (1.01, 1.05), Outcome.PASS),  # twice the tolerance is ruled out
        (DuelOutcome.SLOWER, 1.04, (1.01, 1.11), Outcome.UNDECIDED),
    ],
)
def test_pairs_that_decide_are_final(before, paired, ratio, interval, after):
    found = settle(finding(before), paired, ratio=ratio, interval=interval)

    assert found.verdict.outcome is after
    assert found.by_itself is before
    assert (found.verdict.ratio, found.verdict.interval) == (ratio, interval)
    assert found.reason == (
        f"{100 * (ratio - 1):+.1f} % in 4 pairs of launches of today's code and that of {LABEL};"
        " the tolerance is 5 %"
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (Outcome.PASS, Outcome.PASS),
        (Outcome.IMPROVEMENT, Outcome.IMPROVEMENT),
        (Outcome.REGRESSION, Outcome.REGRESSION),
        (Outcome.SUSPECT, Outcome.SUSPECT),
        (Outcome.UNDECIDED, Outcome.UNDECIDED),
        (Outcome.INVALID, Outcome.UNDECIDED),  # the pairs are valid
    ],
)
def test_pairs_that_do_not_decide_leave_the_outcome(before, after):
    found = settle(finding(before), DuelOutcome.UNDECIDED, ratio=1.05, interval=(0.9, 1.2))

    assert found.verdict.outcome is after
    assert found.by_itself is before


@pytest.mark.parametrize("before", OPEN)
def test_undecided_pairs_that_rule_out_twice_the_tolerance_are_enough(before):
    steady = [(0.01, 0.0101), (0.01, 0.0102), (0.01, 0.0103)] * 2

    found = settle(finding(before), DuelOutcome.UNDECIDED, steps=steady, ratio=1.02)

    assert found.verdict.outcome is Outcome.PASS
    assert 1.02 < found.verdict.upper < 1.1


def test_undecided_pairs_do_not_clear_a_regression():
    steady = [(0.01, 0.0101), (0.01, 0.0102), (0.01, 0.0103)] * 2

    found = settle(finding(Outcome.REGRESSION), DuelOutcome.UNDECIDED, steps=steady, ratio=1.02)

    assert found.verdict.outcome is Outcome.REGRESSION


def test_too_few_pairs_say_so():
    found = settle(
        finding(Outcome.UNDECIDED),
        DuelOutcome.UNDECIDED,
        steps=[(0.01, 0.01)],
        ratio=None,
        interval=None,
        pairs=1,
    )

    assert found.verdict.outcome is Outcome.UNDECIDED
    assert found.reason == f"1 pair of launches of today's code and that of {LABEL} is too few"
    assert found.verdict.upper is None


def test_a_confidence_is_not_rounded_up_to_certainty():
    found = settle(finding(Outcome.SUSPECT), DuelOutcome.SLOWER, ratio=1.1, confidence=0.99998)

    assert "(99.99 % interval -1.0 to +1.0 %)" in found.reason


def test_the_tolerance_is_that_of_the_finding():
    found = settle(finding(Outcome.SUSPECT, tolerance=0.2), DuelOutcome.SLOWER, ratio=1.1)

    assert found.verdict.outcome is Outcome.PASS
    assert "the tolerance is 20 %" in found.reason


def test_a_metric_without_pairs_and_an_exact_one_keep_their_verdicts():
    findings = [
        finding(Outcome.UNDECIDED, metric="tail"),
        finding(Outcome.REGRESSION, metric="structure"),
        finding(Outcome.INVALID, metric="loss"),
    ]
    duel = make_case_duel(DuelOutcome.SLOWER)

    assert settled_verdicts(findings, duel, figures_of(duel), LABEL) == findings


def by_cpu_time(cpu_outcome, *, decides, step_outcome=DuelOutcome.UNDECIDED):
    metrics = (
        make_metric_duel(CASE, step_outcome, decides=not decides, ratio=1.3),
        make_metric_duel(CASE, cpu_outcome, metric="cpu_time", decides=decides, ratio=1.1),
    )
    duel = make_case_duel(cpu_outcome, metrics=metrics)
    findings = [finding(Outcome.UNDECIDED), finding(Outcome.PASS, metric="cpu_time")]
    return settled_verdicts(findings, duel, figures_of(duel), LABEL)


def test_cpu_time_decides_on_the_step_where_the_step_does_not():
    step, cpu = by_cpu_time(DuelOutcome.SLOWER, decides=True, step_outcome=DuelOutcome.SLOWER)

    assert step.verdict.outcome is cpu.verdict.outcome is Outcome.REGRESSION
    assert step.verdict.ratio == 1.1
    assert step.verdict.reason.endswith("; the tolerance is 5 %, by CPU time of a step")
    assert "by CPU" not in cpu.verdict.reason


def test_a_slower_metric_that_does_not_decide_is_not_red():
    step, cpu = by_cpu_time(DuelOutcome.SLOWER, decides=False)

    assert step.verdict.outcome is Outcome.UNDECIDED
    assert cpu.verdict.outcome is Outcome.PASS


def efficiency(before, step_outcome, step_before=Outcome.UNDECIDED):
    findings = [finding(step_before), finding(before, metric="efficiency")]
    restless = [(0.01, 0.02), (0.02, 0.01)] * 2
    undecided = step_outcome is DuelOutcome.UNDECIDED
    pairs = {"pairs": make_pairs(CASE, restless)} if undecided else {}
    duel = make_case_duel(step_outcome, **pairs)
    return settled_verdicts(findings, duel, figures_of(duel), LABEL)[1]


@pytest.mark.parametrize("before", OPEN)
@pytest.mark.parametrize("step", [DuelOutcome.EQUIVALENT, DuelOutcome.FASTER])
def test_a_scaling_cost_without_pairs_of_one_rank_passes_by_its_step(before, step):
    found = efficiency(before, step)

    assert found.verdict.outcome is Outcome.PASS
    assert found.reason.startswith("the step of all ranks is not slower; ")


@pytest.mark.parametrize("before", [*OPEN, Outcome.REGRESSION, Outcome.PASS])
@pytest.mark.parametrize("step", [DuelOutcome.SLOWER, DuelOutcome.UNDECIDED])
def test_a_scaling_cost_of_a_step_that_may_be_slower_stays(before, step):
    assert efficiency(before, step).verdict.outcome is before


def test_a_red_scaling_cost_is_not_cleared_by_its_step():
    """The step of one rank may be faster, which is a loss of efficiency."""
    assert efficiency(Outcome.REGRESSION, DuelOutcome.EQUIVALENT).verdict.outcome is (
        Outcome.REGRESSION
    )
