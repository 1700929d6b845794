"""A stored session of a case: its figures, and whether it counts beside another one."""

from __future__ import annotations

import datetime

import msgspec

from ddp_perf.core.decomposition import TERMS
from ddp_perf.core.environment import Environment
from ddp_perf.core.verdict import Outcome

HALF_DAY = datetime.timedelta(hours=12)  # sessions that are closer count as one
CONTROL = "control"  # the control's name among a launch's figures
TYPICAL_STEP = "median_step_time"  # the name of its median step, which is stored but not gated


class Session(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One session: for each launch one figure of each metric and of the control, by name."""

    date: str  # ISO 8601, UTC
    environment: Environment
    launches: tuple[dict[str, float], ...]
    terms: tuple[dict[str, float], ...] = ()  # of each launch: the terms of its step, s
    overhead_s: float  # of a launch, outside its timed steps
    # By metric, where the session was judged to be off the level: REGRESSION, SUSPECT, IMPROVEMENT.
    verdicts: dict[str, Outcome] = {}
    # Of alike nodes that were measured one by one: the node of each launch. (): it was one machine.
    nodes: tuple[str, ...] = ()
    # By name of each node that was judged to be slower than the others: the date since when.
    slow_nodes: dict[str, str] = {}

    def values(self, metric: str) -> list[float]:
        """Return the figures of `metric`, one for each launch that has it."""
        return [launch[metric] for launch in self.launches if metric in launch]

    def node_names(self) -> tuple[str, ...]:
        """Return the node of each launch: its host, where the session names no node."""
        return self.nodes or (self.environment.host,) * len(self.launches)

    def has_terms(self) -> bool:
        """Return whether any launch has all terms of its step."""
        return any(terms.keys() >= set(TERMS) for terms in self.terms)


def instant(date: str) -> datetime.datetime:
    """Return the time of a date in ISO 8601, which is UTC unless it states otherwise."""
    begun = datetime.datetime.fromisoformat(date)
    return begun if begun.tzinfo else begun.replace(tzinfo=datetime.timezone.utc)


def are_apart(one: str, other: str) -> bool:
    """Return whether two sessions count as two: they began at least half a day apart.

    Sessions of one hour share the state of the machine, and do not show how sessions differ.
    """
    return abs(instant(one) - instant(other)) >= HALF_DAY
