"""The cases of a night: a core that every night gates, and a seventh of the others.

The others rotate over the days of a week. Which day a case has follows from the suite files alone,
so that seven nights in a row measure every case.
"""

from __future__ import annotations

import collections
import datetime
import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from ddp_perf.core.baseline import Baseline
from ddp_perf.core.case import Case, Tier
from ddp_perf.render.units import describe_duration
from ddp_perf.session.measure.rounds import launches_s, session_length

PARTS = 7  # of the rotation: the days of a week
Key = tuple[str, str]  # of a case: its suite and its id


class Night(msgspec.Struct, frozen=True, kw_only=True):
    """The cases of one night, and which of them gate by their times."""

    part: int  # of the rotation, from 1 on: the day of the week, Monday is 1
    core: frozenset[Key]
    rotating: frozenset[Key]  # tonight's part of the others

    def measures(self, case: Case) -> bool:
        """Return whether the case is measured tonight for its own sake."""
        return case.key in self.core or case.key in self.rotating

    def gates(self, case: Case) -> bool:
        """Return whether the case is of the core. The times of the others are only reported."""
        return case.key in self.core


def plan_night(cases: Sequence[Case], fits: Callable[[Case], bool], date: datetime.date) -> Night:
    """Return the core, and the part of the other cases for the day of the week of ``date``."""
    core, part = core_of(cases, fits), date.isoweekday()
    others = [case for case in cases if case.key not in core]
    rotating = {
        case.key
        for tier in {case.tier for case in others}
        for case in _parts([c for c in others if c.tier == tier], fits)[part - 1]
    }
    return Night(part=part, core=core, rotating=frozenset(rotating))


def tonight(cases: Sequence[Case], fits: Callable[[Case], bool]) -> Night:
    """Return the night of a session that begins now. Its day is that of UTC, wherever it runs."""
    return plan_night(cases, fits, datetime.datetime.now(datetime.timezone.utc).date())


def night_length(cases: Sequence[Case], baselines: Mapping[Tier, Baseline], night: Night) -> str:
    """Return how long a night takes, the core and the cases that rotate apart."""
    core = [case for case in cases if night.gates(case)]
    others = [case for case in cases if not night.gates(case)]
    return (
        f"{session_length(cases, baselines)}; of them the core {_part_length(core, baselines)},"
        f" and part {night.part} of {PARTS} of the other cases {_part_length(others, baselines)}"
    )


def _part_length(cases: Sequence[Case], baselines: Mapping[Tier, Baseline]) -> str:
    launches = sum(case.schedule.launches for case in cases)
    seconds = launches_s(cases, baselines)
    return f"{launches} ({describe_duration(seconds)})" if seconds else str(launches)


def core_of(cases: Iterable[Case], fits: Callable[[Case], bool]) -> frozenset[Key]:
    """Return the keys of the core: of each pattern the cases with the most ranks that fit.

    A suite without patterns is of the core as a whole. So is each one-rank case that the scaling of
    another one is computed from.
    """
    whole = [case for case in cases if case.core is None]
    matched: dict[tuple[str, str], list[Case]] = {}
    for case in filter(fits, cases):
        for pattern in case.core or ():
            matched.setdefault((case.suite, pattern), []).append(case)
    found = [*whole, *(case for some in matched.values() for case in _largest(some))]
    singles = ((case.suite, case.single) for case in found if case.single is not None)
    return frozenset([*(case.key for case in found), *singles])


def most_telling_first(cases: Iterable[Case], fits: Callable[[Case], bool]) -> list[Case]:
    """Sort the cases for a measurement that has no time for all of them.

    The core comes first, then one case of each suite before a second one, its largest before
    others, real ranks before emulated ones, and training before collectives.
    """
    cases = list(cases)
    core = core_of(cases, fits)
    ranked = sorted(
        cases,
        key=lambda c: (c.key not in core, c.world_size == 1, c.network is not None, -c.world_size),
    )
    turn: collections.Counter[str] = collections.Counter()
    order: dict[Key, tuple[bool, int, bool]] = {}
    for case in ranked:
        order[case.key] = case.key not in core, turn[case.suite], not case.trains
        turn[case.suite] += 1
    return sorted(ranked, key=lambda case: order[case.key])


def _largest(cases: Sequence[Case]) -> list[Case]:
    """Return the cases with the most ranks, those over each emulated network by themselves."""
    most: dict[str | None, int] = {}
    for case in cases:
        most[case.network] = max(case.world_size, most.get(case.network, 0))
    return [case for case in cases if case.world_size == most[case.network]]


def _parts(cases: Sequence[Case], fits: Callable[[Case], bool]) -> list[list[Case]]:
    """Divide the cases into parts of about as many launches: the largest group first."""
    groups = [
        (sum(case.schedule.launches for case in group if fits(case)), name, group)
        for name, group in _groups(cases).items()
    ]
    parts: list[list[Case]] = [[] for _ in range(PARTS)]
    smallest = [(0, place) for place in range(PARTS)]
    for launches, _, group in sorted(groups, key=lambda one: (-one[0], one[1])):
        so_far, place = heapq.heappop(smallest)
        parts[place] += group
        heapq.heappush(smallest, (so_far + launches, place))
    return parts


def _groups(cases: Sequence[Case]) -> Mapping[Key, list[Case]]:
    """Return the cases that are measured in one night: they share a one-rank case, or a link.

    So no one-rank case is launched twice a week for its scaling, and each fit of a link has all of
    its sizes.
    """
    groups: dict[Key, list[Case]] = {}
    for case in cases:
        link = f"{case.workload} {case.ranks_text}"
        name = link if case.collective is not None else case.single or case.id
        groups.setdefault((case.suite, name), []).append(case)
    return groups
