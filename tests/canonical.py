"""The results that readers meet most, judged by the gate itself, so that each reason is real.

A report of each has a golden file in each medium: tests/unit/report/test_canonical.py.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ddp_perf.baselines.save import Saving
from ddp_perf.baselines.store import BaselineStore
from ddp_perf.core.baseline import Baseline
from ddp_perf.core.case import Case
from ddp_perf.core.launch import RankConditions
from ddp_perf.core.measurement import Measurement
from ddp_perf.core.verdict import Settled
from ddp_perf.duel.case_run import figures_of
from ddp_perf.duel.values import CaseDuel, Duel, MetricDuel, SideCase
from ddp_perf.report.work_rows import WorkReport
from ddp_perf.session.gate.explanation import explain_slower_cases
from ddp_perf.session.gate.judge_again import judge_again
from ddp_perf.session.result import SuiteResult
from ddp_perf.session.store_baseline import save
from ddp_perf.settle.settled_suite import settled_verdicts
from ddp_perf.stats.pairs import PairedPlan, judge_pairs
from ddp_perf.stats.summary import as_session, summaries_of
from tests.builders import (
    PHASES_S,
    make_baseline,
    make_case_baseline,
    make_cases,
    make_environment,
    make_failure,
    make_measurement,
    make_probe,
    make_result,
    make_stored_structure,
    make_utilisation,
    with_conditions,
)
from tests.duels import make_case_duel, make_duel, make_pairs, make_side_failure
from tests.work_reports import make_change, make_counted, make_same, make_work_report

CASES = ONE, TWO, FOUR = tuple(
    make_cases(world_sizes=[1, 2, 4], tolerances={"step_time": 0.05, "efficiency": 0.05})
)
STEP_S = sum(PHASES_S.values())
JITTER = (1.0, 1.002, 0.998, 1.001, 0.999)  # of the launches of a session
SESSIONS = (1.0, 1.003, 0.997, 1.002, 0.998, 1.001)  # that are stored, one a day
PATH = "baselines/cpu-some-2c-host.json"
REFERENCE = "the session of 2026-01-06 (01234567)"


def measured(case: Case, *, factor: float = 1.0, late_s: float = 0.0) -> Measurement:
    """Return five launches, whose batch is late by ``late_s``; one rank waits for no other."""
    exposed = PHASES_S["exposed"] if case.world_size > 1 else 0.0
    step_s = STEP_S - PHASES_S["exposed"] + exposed
    probe = make_probe(data=PHASES_S["data"] + late_s, exposed=exposed)
    steps = [(step_s * factor + late_s) * jitter for jitter in JITTER]
    return make_measurement(case, steps, probe=probe, utilisation=make_utilisation())


def stored() -> Baseline:
    """Return the baseline of all cases: six quiet sessions."""
    cases = {}
    for case in CASES:
        sessions = []
        for day, factor in enumerate(SESSIONS, start=1):
            measurements = {one.id: measured(one, factor=factor) for one in CASES}
            rows = summaries_of(measurements)[case.id]
            date = f"2026-01-{day:02}T03:04:05+00:00"
            sessions.append(as_session(rows, make_environment(), date))
        cases[case.id] = make_case_baseline(case, *sessions)
    return make_baseline(cases)


def judged(
    measurements: Sequence[Measurement], baseline: Baseline | None = None, **changes: Any
) -> SuiteResult:
    """Return the result of these launches, judged and explained by this baseline."""
    baseline = baseline or make_baseline()
    commands = {
        one.case.id: f"pytest -m perf 'tests/perf/test_perf.py::test_step_time[{one.case.id}]'"
        for one in measurements
    }
    result = make_result(
        list(measurements),
        date="2026-01-07T03:04:05+00:00",
        command="pytest -m perf",
        commands=commands,
        **changes,
    )
    structures = {
        case.id: make_stored_structure(case) for case in CASES if case.id in baseline.cases
    }
    result = judge_again(result, baseline, baseline_path=PATH, structures=structures)
    why = explain_slower_cases(result, baseline)
    return msgspec.structs.replace(result, explanations=why, **changes)


def first_day() -> SuiteResult:
    """Nothing is stored, and ``--save-baseline`` stores all (in the current directory)."""
    result = judged([measured(case) for case in CASES])
    store, saving = BaselineStore(Path("baselines")), Saving(mode="missing", reason=None)
    return save(result, [*result.measurements], make_baseline(), store, saving)


def all_green() -> SuiteResult:
    return judged([measured(case) for case in CASES], stored())


def red_with_cause() -> SuiteResult:
    """Each step of both cases of several ranks waits 4 ms for its batch."""
    late = {ONE.id: 0.0, TWO.id: 0.004, FOUR.id: 0.004}
    return judged([measured(case, late_s=late[case.id]) for case in CASES], stored())


def settled() -> SuiteResult:
    """Four pairs beside the stored code show that a changed line makes two ranks slower."""
    result = judged(
        [measured(case, factor=1.05 if case == TWO else 1.0) for case in CASES], stored()
    )
    own = [found for found in result.findings if found.case_id == TWO.id]
    case = paired(TWO, (1.09, 1.08, 1.1, 1.07, 1.08, 1.09, 1.1, 1.08))
    of_case = iter(settled_verdicts(own, case, figures_of(case), REFERENCE))
    note = Settled(
        reference="2026-01-06T03:04:05+00:00",
        label=REFERENCE,
        commit="0123456789ab",
        changed=("model.py, which its workload imports",),
        pairs=8,
        seconds=42.0,
        causes=("changed line: model.py:2: return slow(context)",),
    )
    return msgspec.structs.replace(
        result,
        findings=tuple(next(of_case) if found in own else found for found in result.findings),
        settled={TWO.id: note},
    )


def disturbed() -> SuiteResult:
    """Other processes computed on the cores during each launch."""
    busy = [RankConditions(stolen=0.01, foreign=0.31)] * len(JITTER)
    return judged([with_conditions(measured(case), *busy) for case in CASES], stored())


def failed_rank() -> SuiteResult:
    """A rank of four ended with an error in its third launch."""
    failure = make_failure(
        FOUR,
        2,
        rank=3,
        detail="RuntimeError: shapes (64x16) and (32x8) cannot be multiplied",
        user_frames='  File "model.py", line 2, in build\n    return wide(context)\n',
        output="\n".join(f"step {number}" for number in range(4)),
    )
    begun = measured(FOUR)
    launches = begun.launches[:2]
    broken = msgspec.structs.replace(begun, launches=launches, failures=(failure,))
    return judged([measured(ONE), measured(TWO), broken], stored())


def paired(case: Case, ratios: Sequence[float], **changes: Any) -> CaseDuel:
    """Return a case with a pair for each of these ratios B ÷ A, judged by its step time."""
    plan = PairedPlan(alpha=0.01, tolerance=0.05, looks=(len(ratios), 24))
    verdict = judge_pairs([math.log(ratio) for ratio in ratios], plan)
    pairs = make_pairs(case, [(0.01, 0.01 * ratio) for ratio in ratios], probe=make_probe())
    step = MetricDuel(
        case_id=case.id,
        metric="step_time",
        verdict=verdict,
        a=0.01,
        b=0.01 * statistics.median(ratios),
        tolerance=plan.tolerance,
        decides=True,
    )
    return make_case_duel(verdict.outcome, case, pairs=pairs, metrics=(step,), **changes)


def duel() -> Duel:
    """One case is slower with a changed line, one is open, one is equal, and one is broken."""
    one, two, four, large = make_cases(world_sizes=[1, 2, 4, 8])
    failed = make_side_failure("B", large, output="line 1\nline 2")
    return make_duel(
        paired(four, (1.1, 1.12, 1.09, 1.11, 1.1, 1.1), work=(make_change(),)),
        paired(two, (1.12, 0.93, 1.09, 1.01, 0.98, 1.06)),
        paired(one, (1.0, 1.01, 0.99, 1.0, 1.01, 0.99)),
        CaseDuel(cases=SideCase(a=large, b=large), failures=(failed,)),
        differences=("torch: 2.12.0 → 2.13.0",),
    )


def work() -> WorkReport:
    """One case does more clones, and another one the same as before."""
    one, two = make_cases(tier="gpu")
    return make_work_report(make_counted(case=two), make_same(one))


SUITES: dict[str, Callable[[], SuiteResult]] = {
    made.__name__: made
    for made in (first_day, all_green, red_with_cause, settled, disturbed, failed_rank)
}
