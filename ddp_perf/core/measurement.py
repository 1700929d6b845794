"""What a session measured of one case, and what was concluded from it."""

from __future__ import annotations

from typing import Literal

import msgspec

from ddp_perf.core.baseline import Acknowledgement
from ddp_perf.core.case import Case
from ddp_perf.core.decomposition import Decomposition
from ddp_perf.core.launch import LaunchFailure, LaunchResult
from ddp_perf.core.verdict import Verdict


class LaunchSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One launch in figures. ``values`` holds one figure for each gated metric, by name."""

    round: int
    values: dict[str, float]
    control_s: float  # median of the control, slowest rank
    mean_step_s: float
    p95_step_s: float
    throughput: float  # of the workload's unit, per second, over all ranks and measured steps
    decomposition: Decomposition | None = None  # None: of a file that is older than probes
    overhead_s: float | None = None  # of the launch beyond its timed steps; None: an older file


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """All launches of one case in one session."""

    case: Case
    launches: tuple[LaunchResult, ...]
    failures: tuple[LaunchFailure, ...]


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """What was concluded before more launches were taken."""

    launches: int
    verdict: Verdict


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody said of a regression beforehand, and how that stands in this session."""

    acknowledgement: Acknowledgement
    state: Literal["expected", "expired", "over"]


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict on one metric of one case, with the figures it compared."""

    case_id: str
    metric: str
    verdict: Verdict
    launches: int = 0  # of this session, that the verdict rests on
    sessions: int = 0  # of the baseline, that it was judged against
    earlier: tuple[Look, ...] = ()  # looks after fewer launches, each undecided
    value: float | None = None  # median over the launches of this session
    baseline: float | None = None  # median over the reference sessions
    baseline_date: str | None = None
    changed: tuple[str, ...] = ()  # of machine and software since then, each with both values
    published: str | None = None  # how a published figure of the same compares, in one line
    disturbance: str | None = None  # what made its launches worth nothing: it is INVALID then
    known: Known | None = None  # None: nobody acknowledged it
    drift: float | None = None  # this session ÷ the first one ever saved, over all re-baselines
