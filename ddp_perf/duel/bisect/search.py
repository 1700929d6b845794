"""The search as a function of its launches: what they show so far, and which pair comes next.

First good and bad are launched in pairs, until bad is shown to be slower. Then a commit is launched
beside good and beside bad in turn. The median search has an eighth to a quarter fewer launches than
with all three in one block (benchmarks/commit_search.py).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Literal

import msgspec

from ddp_perf.core.duel import DuelOutcome, PairedVerdict
from ddp_perf.core.metric import CPU_TIME, STEP_TIME
from ddp_perf.duel.bisect.belief import Belief, Reading, Suspects, believe, places_to_ask
from ddp_perf.duel.bisect.log import CommitLaunch
from ddp_perf.stats.duel.pair_plan import PairedPlan, plan_pair_looks
from ddp_perf.stats.duel.yardstick import choose_yardstick
from ddp_perf.stats.pairs import judge_pairs

_MOST_PAIRS = 40  # of good and bad
_LOOKS = plan_pair_looks(_MOST_PAIRS)
_ALPHA = 0.01  # of a slow-down that is not there
_TOLERANCE = 0.01  # bad is equivalent to good within it: there is nothing to find
# A launch in a slow mode makes one commit look slow, and the search ends there: all before it are
# fast. So both commits beside a step are launched this often before it is believed.
_CONFIRMED = 3


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A line of commits of which good is at place 0 and bad at ``length``."""

    length: int
    confidence: float
    innocent: frozenset[int] = frozenset()  # places of commits that cannot be to blame
    first: tuple[int, ...] = ()  # places that are asked before any others between good and bad

    @property
    def suspects(self) -> tuple[int, ...]:
        """The places of the commits that may be to blame."""
        return tuple(place for place in range(1, self.length + 1) if place not in self.innocent)

    @property
    def places(self) -> tuple[int, ...]:
        """The places that may be asked, with good and bad."""
        return places_to_ask(self.length, self.innocent)

    def stand_in(self, place: int) -> int:
        """Return the place that is asked in its stead: nothing between them changes the step."""
        changed = [suspect for suspect in self.suspects if suspect <= place]
        if not changed:
            return 0
        return self.length if changed == list(self.suspects) else changed[-1]


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """The finding of the launches so far."""

    metric: str  # that decides
    why: str  # it decides
    duel: PairedVerdict  # of bad against good
    untestable: dict[int, str] = {}  # why, by place
    readings: tuple[Reading, ...] = ()
    belief: Belief | None = None  # None: bad is not shown to be slower
    suspects: tuple[Suspects, ...] = ()  # the group of each step; (): not found yet
    ask: tuple[int, int] | None  # places of the next pair; None: there is nothing left to ask

    @property
    def outcome(self) -> Literal["found", "not slower", "undecided"]:
        if self.suspects:
            return "found"
        return "not slower" if self.belief is None and self.ask is None else "undecided"


def standing(
    question: Question, launches: Sequence[CommitLaunch], *, earlier: int = 0, ended: bool = False
) -> Standing:
    """Return what the launches show. ``ended``: there will be no more, so that the duel is judged.

    Only finished launches are given, so that a search may end and go on anywhere. As many as
    ``earlier`` of them are of earlier runs: a commit that failed in these is launched once more
    before it is said that it cannot be told from the culprit.
    """
    ends = _pairs(launches, 0, question.length)
    metric, why, duel = _duel(ends, ended=ended)
    untestable = _untestable(launches)
    if duel.outcome is not DuelOutcome.SLOWER:
        more = duel.outcome is DuelOutcome.UNDECIDED and duel.pairs < _LOOKS[-1]
        ask = (0, question.length) if more else None
        return Standing(metric=metric, why=why, duel=duel, untestable=untestable, ask=ask)
    readings = _readings(launches, metric)
    belief = believe(question.length, untestable, readings, question.innocent)
    suspects = belief.found(question.confidence)
    often = Counter(reading.place for reading in readings)
    place = unconfirmed = _unconfirmed(question, suspects, untestable, often)
    if place is None:
        tried = {launch.place for launch in launches[earlier:]}
        place = (
            _untried(suspects, untestable, tried)
            if suspects
            else _next_place(question, belief, untestable, often)
        )
    return Standing(
        metric=metric,
        why=why,
        duel=duel,
        untestable=untestable,
        readings=readings,
        belief=belief,
        suspects=suspects if unconfirmed is None else (),
        ask=None if place is None else (place, min((0, question.length), key=often.__getitem__)),
    )


def _duel(
    ends: Sequence[tuple[CommitLaunch, CommitLaunch]], *, ended: bool
) -> tuple[str, str, PairedVerdict]:
    """Return the metric that shows best that bad is slower, why, and its verdict.

    The yardstick decides if it shows it. The other metric is judged too: CPU time does not show
    that a step waits longer.
    """
    names, why = _metrics(ends)
    plan = PairedPlan(alpha=_ALPHA / len(names), tolerance=_TOLERANCE, looks=_LOOKS)
    verdicts = {
        name: judge_pairs([_log_ratio(pair, name) for pair in ends], plan, ended=ended)
        for name in names
    }
    for name, verdict in verdicts.items():
        if _is_slower(verdict):
            shown = msgspec.structs.replace(verdict, outcome=DuelOutcome.SLOWER)
            return name, why if name == names[0] else f"{names[0]} does not show it", shown
    undecided = (n for n, verdict in verdicts.items() if verdict.outcome is DuelOutcome.UNDECIDED)
    name = next(undecided, names[0])
    return name, why, verdicts[name]


def _is_slower(verdict: PairedVerdict) -> bool:
    """Return whether bad is slower, however little: a person asked for the commit."""
    if verdict.outcome is not DuelOutcome.EQUIVALENT:
        return verdict.outcome is DuelOutcome.SLOWER
    return verdict.interval is not None and verdict.interval[0] > 1


def _metrics(ends: Sequence[tuple[CommitLaunch, CommitLaunch]]) -> tuple[list[str], str]:
    """Return the yardstick and the other metric, chosen by good's launches of the first look."""
    wall, cpu = STEP_TIME.name, CPU_TIME.name
    if not all(cpu in launch.values for pair in ends for launch in pair):
        return [wall], "it is the only one on a GPU"
    if len(ends) < _LOOKS[0]:
        return [wall, cpu], "too few launches to choose"
    good = [pair[0].values for pair in ends[: _LOOKS[0]]]
    chosen = choose_yardstick([each[wall] for each in good], [each[cpu] for each in good])
    return sorted([wall, cpu], key=lambda name: name != chosen.metric), chosen.reason


def _log_ratio(pair: tuple[CommitLaunch, CommitLaunch], metric: str) -> float:
    good, bad = pair
    return math.log(bad.values[metric] / good.values[metric])


def _blocks(launches: Sequence[CommitLaunch]) -> list[dict[int, CommitLaunch]]:
    """Return the launches of each block that has several, by place."""
    blocks: dict[int, dict[int, CommitLaunch]] = {}
    for launch in launches:
        if launch.failure is None:
            blocks.setdefault(launch.block, {})[launch.place] = launch
    return [block for block in blocks.values() if len(block) > 1]


def _pairs(
    launches: Sequence[CommitLaunch], first: int, second: int
) -> list[tuple[CommitLaunch, CommitLaunch]]:
    return [
        (block[first], block[second])
        for block in _blocks(launches)
        if first in block and second in block
    ]


def _readings(launches: Sequence[CommitLaunch], metric: str) -> tuple[Reading, ...]:
    return tuple(
        Reading(block=launch.block, place=launch.place, log=math.log(launch.values[metric]))
        for block in _blocks(launches)
        for launch in block.values()
    )


def _unconfirmed(
    question: Question,
    suspects: Sequence[Suspects],
    untestable: dict[int, str],
    often: Counter[int],
) -> int | None:
    """Return the commit beside a step that was launched least, if it was not launched enough."""
    beside = {place for each in suspects for place in (each.first - 1, each.last)}
    few = beside - {0, question.length, *untestable}
    place = min(few, key=lambda one: (often[one], one), default=None)
    return place if place is not None and often[place] < _CONFIRMED else None


def _untestable(launches: Sequence[CommitLaunch]) -> dict[int, str]:
    """Return why a commit cannot be launched, for each that failed more often than it did not."""
    reasons = {launch.place: launch.failure for launch in launches if launch.failure is not None}
    failed = Counter(launch.place for launch in launches if launch.failure is not None)
    worked = Counter(launch.place for launch in launches if launch.failure is None)
    return {place: why for place, why in reasons.items() if failed[place] > worked[place]}


def _untried(
    suspects: Sequence[Suspects], untestable: dict[int, str], tried: set[int]
) -> int | None:
    """Return a commit of a step that failed in an earlier run, and was not tried in this one.

    What it failed of may be over: another process took the memory, or the disk was full.
    """
    places = [place for each in suspects for place in range(each.first, each.last)]
    again = [place for place in places if place in untestable and place not in tried]
    return again[len(again) // 2] if again else None


def _next_place(
    question: Question, belief: Belief, untestable: dict[int, str], often: Counter[int]
) -> int | None:
    """Return one of the first commits that was not asked yet, else the one to ask now."""
    ends = {0, question.length}
    for place in question.first:
        if place not in {*ends, *often, *untestable}:
            return place
    return _least_certain(belief, {*ends, *untestable}, often)


def _least_certain(belief: Belief, skipped: set[int], often: Counter[int]) -> int | None:
    """Return the commit whose level is the least certain; None: there is none to ask."""
    doubts = [
        (doubt, -often[place], place)
        for place, doubt in zip(belief.marks, belief.doubt, strict=True)
        if place not in skipped
    ]
    return max(doubts)[2] if doubts else None
