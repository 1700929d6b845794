"""The launches of a self-test: one case, as it is and slowed on purpose.

The launches are an endless sequence. A budget ends it anywhere, and a later run continues it. It
begins with unslowed launches for the smallest baseline. Rounds follow: one launch of each
slow-down and two unslowed ones, in random order, so that a drift of the machine affects all alike.
"""

from __future__ import annotations

import datetime
import itertools
import random
import time
from collections.abc import Callable

import msgspec

from ddp_perf.core.case import Case
from ddp_perf.core.injection import Injection, parse_injection
from ddp_perf.core.launch import LaunchFailure, LaunchRequest
from ddp_perf.launch.launcher import Launcher
from ddp_perf.selftest.log import SelftestLog, TimedLaunch
from ddp_perf.stats.summary import summarise

PERCENTS = (2, 3, 5, 10, 20)
_UNSLOWED = 2  # launches per round: they are trials too, and the baseline of all trials
_LEAST_SESSIONS, _MOST_SESSIONS = 3, 8


class SelftestRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The case of a self-test, with the error rates of the gate."""

    case: Case
    launches: int  # per session
    false_alarm_rate: float  # per session
    alpha: float  # of one verdict: its share of the suite's rate
    import_paths: tuple[str, ...] = ()  # where ranks import a user's workload from


def run_selftest(
    request: SelftestRequest,
    log: SelftestLog,
    launcher: Launcher,
    *,
    until: float,
    on_launch: Callable[[int], None],
) -> LaunchFailure | None:
    """Append launches to the log until ``time.monotonic()`` is ``until``, or a launch fails.

    Return the failure, or None. ``on_launch`` receives the number of launches in the log. Raises
    LaunchError if ranks cannot be started, ResultsError if the log cannot be written.
    """
    last_s = 0.0
    while (begin := time.monotonic()) + last_s <= until:
        number = len(log.launches)
        percent = percent_of(number, request.launches)
        started = datetime.datetime.now(datetime.timezone.utc)
        outcome = launcher.launch(
            LaunchRequest(
                case=request.case,
                round=number,
                import_paths=request.import_paths,
                injections=_injections(percent),
            )
        )
        if isinstance(outcome, LaunchFailure):
            return outcome
        last_s = time.monotonic() - begin
        log.append(
            TimedLaunch(
                percent=percent,
                started=started.isoformat(timespec="seconds"),
                wall_s=last_s,
                summary=summarise(
                    outcome, samples_per_step=request.case.samples_per_step, single=None
                ),
            )
        )
        on_launch(len(log.launches))
    return None


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
