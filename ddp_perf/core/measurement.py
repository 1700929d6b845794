"""The measurement of one case in a session, and the findings about it."""

from __future__ import annotations

from typing import Literal

import msgspec

from ddp_perf.core.baseline import Acknowledgement
from ddp_perf.core.case import Case
from ddp_perf.core.decomposition import Decomposition
from ddp_perf.core.launch import LaunchFailure, LaunchResult
from ddp_perf.core.target import Target
from ddp_perf.core.verdict import Outcome, Verdict


class LaunchSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one launch. ``values`` contains one figure for each gated metric, by name."""

    round: int
    values: dict[str, float]
    control_s: float  # median of the control, slowest rank
    typical_step_s: float  # median
    mean_step_s: float
    p95_step_s: float
    throughput: float  # units of the workload per second, over all ranks and measured steps
    decomposition: Decomposition | None = None  # None: a file that is older than probes
    overhead_s: float | None = None  # of the launch, outside its timed steps; None: an older file


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """All launches of one case in one session."""

    case: Case
    launches: tuple[LaunchResult, ...]
    failures: tuple[LaunchFailure, ...]


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """An interim look: the verdict before more launches were added."""

    launches: int
    verdict: Verdict


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """The acknowledgement of a regression, and its state in this session."""

    acknowledgement: Acknowledgement
    state: Literal["expected", "grown", "expired", "over"]  # "grown": slower than acknowledged


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict on one metric of one case, with the compared figures."""

    case_id: str
    metric: str
    verdict: Verdict
    launches: int = 0  # launches of this session that the verdict uses
    sessions: int = 0  # sessions of the baseline that the verdict uses
    earlier: tuple[Look, ...] = ()  # interim looks after fewer launches, all undecided
    value: float | None = None  # median over the launches of this session
    baseline: float | None = None  # median over the reference sessions
    baseline_date: str | None = None
    changed: tuple[str, ...] = ()  # machine and software: each change since then, with both values
    by_itself: Outcome | None = None  # outcome without the sessions before, if they changed it
    off_level: tuple[str, ...] = ()  # dates of stored sessions that turned out to be slower
    tolerance: float | None = None  # of the metric, as a fraction; None: it was not compared
    published: str | None = None  # comparison with a published figure of the same work, in one line
    disturbance: str | None = None  # reason why its launches are worthless: then it is INVALID
    known: Known | None = None  # None: not acknowledged
    drift: float | None = None  # this session ÷ the first one ever saved, over all re-baselines
    target: Target | None = None  # that `value` is judged by, instead of a baseline
    value_interval: tuple[float, float] | None = None  # 99 %, of `value` over the launches

    @property
    def is_expected(self) -> bool:
        """True if it is a regression that was acknowledged until a date that is not over."""
        return self.known is not None and self.known.state == "expected"
