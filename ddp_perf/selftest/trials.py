"""The trials of a self-test: its launches are grouped into sessions, which the gate judges.

Consecutive launches of one slow-down form a session. Each session is judged by the gate's own
code against the unslowed sessions before it.
"""

from __future__ import annotations

import itertools
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec

from ddp_perf.core.environment import Environment
from ddp_perf.core.metric import STEP_TIME, gated_metrics, needs_single_rank
from ddp_perf.core.session import Session
from ddp_perf.core.verdict import Outcome
from ddp_perf.selftest.curve import LEAST_TRIALS, FalseAlarms, Point, PowerCurve
from ddp_perf.selftest.launches import (
    PERCENTS,
    SelftestRequest,
    baseline_sessions_for,
    launches_for,
)
from ddp_perf.selftest.log import TimedLaunch
from ddp_perf.selftest.power import SlowDown, slow_down_of
from ddp_perf.session.gate.judge_suite import judge_session, tolerance_of
from ddp_perf.stats.share import share_found
from ddp_perf.stats.summary import as_session


class _Block(msgspec.Struct, frozen=True, kw_only=True):
    """A session made of launches. ``first`` and ``last`` are the numbers of its launches."""

    percent: int
    first: int
    last: int
    session: Session


_Trial = tuple[_Block, list[_Block]]  # a session, and its baseline


def power_curve(
    request: SelftestRequest,
    launches: Sequence[TimedLaunch],
    environment: Environment,
) -> PowerCurve:
    """Judge the sessions of a self-test, and return its points."""
    blocks = list(_blocks(request, launches, environment))
    unslowed = [block for block in blocks if block.percent == 0]
    sessions = baseline_sessions_for(len(unslowed))
    trials = list(_trials(blocks, unslowed, sessions))
    points = tuple(
        _point(request, percent, launches, [t for t in trials if t[0].percent == percent])
        for percent in (0, *PERCENTS)
    )
    return PowerCurve(
        suite=request.case.suite,
        case_id=request.case.id,
        environment=environment,
        tolerance=request.case.tolerances.step_time,
        false_alarm_rate=request.false_alarm_rate,
        alpha=request.alpha,
        launches=request.launches,
        sessions=sessions,
        points=points,
        false_alarms=_false_alarms(request, [t for t in trials if t[0].percent == 0]),
        launch_s=statistics.median(launch.wall_s for launch in launches) if launches else None,
        missing_launches=_missing(request, points, len(launches)),
    )


def _blocks(
    request: SelftestRequest, launches: Sequence[TimedLaunch], environment: Environment
) -> Iterator[_Block]:
    for percent in (0, *PERCENTS):
        numbers = [n for n, launch in enumerate(launches) if launch.percent == percent]
        for end in range(request.launches, len(numbers) + 1, request.launches):
            chosen = numbers[end - request.launches : end]
            summaries = [launches[number].summary for number in chosen]
            yield _Block(
                percent=percent,
                first=chosen[0],
                last=chosen[-1],
                session=as_session(summaries, environment, launches[chosen[0]].started),
            )


def _trials(
    blocks: Sequence[_Block], unslowed: Sequence[_Block], sessions: int
) -> Iterator[_Trial]:
    for block in blocks:
        before = [other for other in unslowed if other.last < block.first]
        if len(before) >= sessions:
            yield block, before[-sessions:]


def _point(
    request: SelftestRequest,
    percent: int,
    launches: Sequence[TimedLaunch],
    trials: Sequence[_Trial],
) -> Point:
    outcomes = Counter(_outcome(request, STEP_TIME.name, trial) for trial in trials)
    return Point(
        percent=percent,
        slow_down=_slow_down(launches, percent) if percent else None,
        launches=sum(launch.percent == percent for launch in launches),
        outcomes=dict(outcomes),
        found=share_found(outcomes[Outcome.REGRESSION], len(trials)),
    )


def _outcome(request: SelftestRequest, metric: str, trial: _Trial) -> Outcome:
    block, before = trial
    return judge_session(
        metric,
        block.session,
        [session.session for session in before],
        tolerance=tolerance_of(request.case, metric),
        alpha=request.alpha,
        prior=None,  # it comes from the machine's other cases, and there are none here
    ).outcome


def _slow_down(launches: Sequence[TimedLaunch], percent: int) -> SlowDown | None:
    """Compare with the unslowed launches of the rounds. Earlier ones are from another time."""
    rounds = list(itertools.dropwhile(lambda launch: launch.percent == 0, launches))
    slowed, unslowed = (
        [launch.summary.values[STEP_TIME.name] for launch in rounds if launch.percent == wanted]
        for wanted in (percent, 0)
    )
    return slow_down_of(slowed, unslowed)


def _false_alarms(request: SelftestRequest, trials: Sequence[_Trial]) -> FalseAlarms:
    # The efficiency needs launches of one rank, which a self-test does not have.
    metrics = [name for name in gated_metrics(request.case) if not needs_single_rank(name)]
    alarms = [
        [name for name in metrics if _outcome(request, name, trial) is Outcome.REGRESSION]
        for trial in trials
    ]
    found = share_found(sum(map(bool, alarms)), len(trials))
    promised = request.alpha * len(metrics)
    return FalseAlarms(
        share=found,
        by_metric=dict(Counter(name for names in alarms for name in names)),
        promised=promised,
        chance=found.chance(promised),
    )


def _missing(request: SelftestRequest, points: Sequence[Point], launches: int) -> int:
    if min(point.found.trials for point in points) >= LEAST_TRIALS:
        return 0
    # At least one session: the launches so far may have been measured with another group size.
    needed = launches_for(LEAST_TRIALS, request.launches)
    return max(needed - launches, request.launches)
