"""The trials of a self-test: launches are logged, grouped into sessions, and judged by the gate."""

from __future__ import annotations

import itertools
import random
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from ddp_perf.core.baseline import Session
from ddp_perf.core.case import Case
from ddp_perf.core.environment import Environment
from ddp_perf.core.injection import Injection, parse_injection
from ddp_perf.core.launch import LaunchFailure, LaunchRequest
from ddp_perf.core.measurement import LaunchSummary
from ddp_perf.core.metric import STEP_TIME, gated_metrics, needs_single_rank
from ddp_perf.core.verdict import FALSE_ALARM_RATE, Outcome
from ddp_perf.launch.launcher import Launcher
from ddp_perf.selftest.curve import (
    LEAST_TRIALS,
    FalseAlarms,
    Point,
    PowerCurve,
    SlowDown,
    slow_down_of,
)
from ddp_perf.session.gate.judge_suite import judge_session, tolerance_of
from ddp_perf.session.measure.experiment import (
    Arm,
    Block,
    Experiment,
    History,
    Log,
    LoggedLaunch,
)
from ddp_perf.stats.interval import share_found
from ddp_perf.stats.rule.comparison import JudgeOptions
from ddp_perf.stats.summary import as_session
from ddp_perf.system.ledger import Conditions, Ledger

# ``launches.jsonl``: the launches of a self-test, written one by one for a later run.


_REMEDY = "give another --output, or delete the file"


def conditions_of(case: Case, environment: Environment) -> Conditions:
    """Return everything that all launches of one self-test must have in common."""
    return {
        "case": case.id,
        **case.work(),
        "steps": case.schedule.steps,
        "warmup": case.schedule.warmup,
        **environment.conditions(),
    }


def open_launches(path: Path, case: Case, environment: Environment) -> Log:
    """Open the launches of a self-test. Close them. Raises ResultsError."""
    return Ledger(path, LoggedLaunch, conditions_of(case, environment), remedy=_REMEDY)


# The launches of a self-test: one case, as it is and slowed on purpose.
#
# The launches are an endless sequence. A budget ends it anywhere, and a later run continues it. It
# begins with unslowed launches for the smallest baseline. Rounds follow: one launch of each
# slow-down and two unslowed ones, in random order, so that a drift of the machine affects all
# alike.


PERCENTS = (2, 3, 5, 10, 20)
_UNSLOWED = 2  # launches per round: they are trials too, and the baseline of all trials
_LEAST_SESSIONS, _MOST_SESSIONS = 3, 8


class SelftestRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The case of a self-test, with the error rates of the gate."""

    case: Case
    launches: int  # per session
    alpha: float  # of one verdict: its share of the suite's rate
    import_paths: tuple[str, ...] = ()  # where ranks import a user's workload from


class Slowing:
    """The policy of a self-test: an endless sequence, until a launch fails.

    ``earlier`` is how many launches were logged before. The arm of a launch is its slow-down.
    """

    def __init__(self, request: SelftestRequest, launcher: Launcher, *, earlier: int) -> None:
        self._request, self._launcher, self._earlier = request, launcher, earlier

    def next(self, history: History) -> Block | None:
        if self.failure(history) is not None:
            return None
        number = len(finished(history))
        percent = percent_of(number, self._request.launches)
        request = LaunchRequest(
            case=self._request.case,
            round=number,
            import_paths=self._request.import_paths,
            injections=_injections(percent),
        )
        return Block(number, (Arm(str(percent), self._launcher, request),))

    def failure(self, history: History) -> LaunchFailure | None:
        """Return the failure that ended this run, or None."""
        return history[-1].failure if len(history) > self._earlier else None


def run_selftest(
    request: SelftestRequest,
    log: Log,
    launcher: Launcher,
    *,
    until: float,
    on_launch: Callable[[int], None],
) -> LaunchFailure | None:
    """Append launches to the log until ``time.monotonic()`` is ``until``, or a launch fails.

    Return the failure, or None. ``on_launch`` receives the number of launches in the log. Raises
    LaunchError if ranks cannot be started, ResultsError if the log cannot be written.
    """
    slowing = Slowing(request, launcher, earlier=log.earlier)
    Experiment(log).run(slowing, until=until, on_launch=lambda _: on_launch(len(log.entries)))
    return slowing.failure(log.entries)


def finished(history: History) -> list[LoggedLaunch]:
    """Return the launches that did not fail."""
    return [launch for launch in history if launch.failure is None]


def percent_of(number: int, launches: int) -> int:
    """Return the slow-down of launch ``number``, in per cent, with ``launches`` per session."""
    first = _LEAST_SESSIONS * launches
    if number < first:
        return 0
    order = [*PERCENTS, *[0] * _UNSLOWED]
    round_, place = divmod(number - first, len(order))
    random.Random(round_).shuffle(order)
    return order[place]


def baseline_sessions_for(unslowed: int) -> int:
    """Return how many of the unslowed sessions make a baseline. The rest is left for trials."""
    return min(_MOST_SESSIONS, max(_LEAST_SESSIONS, unslowed // 3))


def launches_for(trials: int, launches: int) -> int:
    """Return the number of launches that give each slow-down ``trials`` trials.

    ``launches`` is per session. In each cycle every slow-down gets one session, which is judged
    against the unslowed sessions before it.
    """
    for cycles in itertools.count(1):
        sessions = baseline_sessions_for(_LEAST_SESSIONS + cycles * _UNSLOWED)
        judged = sum(_LEAST_SESSIONS + cycle * _UNSLOWED >= sessions for cycle in range(cycles))
        if judged >= trials:
            break
    return launches * (_LEAST_SESSIONS + cycles * (len(PERCENTS) + _UNSLOWED))


def _injections(percent: int) -> tuple[Injection, ...]:
    return (parse_injection(f"compute:{percent}%"),) if percent else ()


def _percent(launch: LoggedLaunch) -> int:
    return int(launch.arm)


def _summary(launch: LoggedLaunch) -> LaunchSummary:
    assert launch.summary is not None  # it did not fail
    return launch.summary


# The trials of a self-test: its launches are grouped into sessions, which the gate judges.
#
# Consecutive launches of one slow-down form a session. Each session is judged by the gate's own
# code against the unslowed sessions before it.


class _Block(msgspec.Struct, frozen=True, kw_only=True):
    """A session made of launches. ``first`` and ``last`` are the numbers of its launches."""

    percent: int
    first: int
    last: int
    session: Session


_Trial = tuple[_Block, list[_Block]]  # a session, and its baseline


def power_curve(
    request: SelftestRequest,
    launches: History,
    environment: Environment,
) -> PowerCurve:
    """Judge the sessions of a self-test, and return its points."""
    launches = finished(launches)
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
        false_alarm_rate=FALSE_ALARM_RATE,
        alpha=request.alpha,
        launches=request.launches,
        sessions=sessions,
        points=points,
        false_alarms=_false_alarms(request, [t for t in trials if t[0].percent == 0]),
        launch_s=statistics.median(launch.wall_s for launch in launches) if launches else None,
        missing_launches=_missing(request, points, len(launches)),
    )


def _blocks(
    request: SelftestRequest, launches: History, environment: Environment
) -> Iterator[_Block]:
    for percent in (0, *PERCENTS):
        numbers = [n for n, launch in enumerate(launches) if _percent(launch) == percent]
        for end in range(request.launches, len(numbers) + 1, request.launches):
            chosen = numbers[end - request.launches : end]
            summaries = [_summary(launches[number]) for number in chosen]
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
    launches: History,
    trials: Sequence[_Trial],
) -> Point:
    outcomes = Counter(_outcome(request, STEP_TIME.name, trial) for trial in trials)
    return Point(
        percent=percent,
        slow_down=_slow_down(launches, percent) if percent else None,
        launches=sum(_percent(launch) == percent for launch in launches),
        outcomes=dict(outcomes),
        found=share_found(outcomes[Outcome.REGRESSION], len(trials)),
    )


def _outcome(request: SelftestRequest, metric: str, trial: _Trial) -> Outcome:
    block, before = trial
    return judge_session(
        metric,
        block.session,
        [session.session for session in before],
        # Without a prior: it comes from the machine's other cases, and there are none here.
        JudgeOptions(tolerance=tolerance_of(request.case, metric), alpha=request.alpha),
    ).outcome


def _slow_down(launches: History, percent: int) -> SlowDown | None:
    """Compare with the unslowed launches of the rounds. Earlier ones are from another time."""
    rounds = list(itertools.dropwhile(lambda launch: _percent(launch) == 0, launches))
    slowed, unslowed = (
        [launch.values[STEP_TIME.name] for launch in rounds if _percent(launch) == wanted]
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
