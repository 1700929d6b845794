"""The search given noisy launches: the belief in each place of a step, and the next question."""

from __future__ import annotations

import functools
import itertools
import math
import os
from collections import Counter
from collections.abc import Iterable, Sequence, Set
from importlib.metadata import version
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
from scipy import special

from ddp_perf.core.environment import Environment
from ddp_perf.core.launch import LaunchFailure
from ddp_perf.core.metric import CPU_TIME, STEP_TIME
from ddp_perf.core.verdict import DuelOutcome, PairedVerdict
from ddp_perf.duel.bisect.commits import CommitLine
from ddp_perf.duel.inventory import digest_of_sources
from ddp_perf.duel.sides.checkout import cache_shelf
from ddp_perf.session.measure.experiment import (
    History,
    Log,
    LoggedLaunch,
    blocks_of,
    open_log,
    pairs_of,
)
from ddp_perf.stats.pairs import PairedPlan, choose_yardstick, judge_pairs, plan_pair_looks
from ddp_perf.stats.robust import Floats
from ddp_perf.system.ledger import Conditions

# The place of a step: the probability of each one on a line of commits, given noisy launches.
#
# The search is a probabilistic bisection (Horstein, IEEE Trans. Inform. Theory 9, 1963; Burnashev &
# Zigangirov, Problems Inform. Transmission 10, 1974; Waeber, Frazier & Henderson, SIAM J. Control
# Optim. 51, 2013): it keeps a posterior over the places, and next asks the commit about which that
# is the least certain. With one step this is its median.
#
# A hypothesis gives each commit a level z: 0 (as good), 1 (as bad), or between or beyond them if
# there are two steps. The logs of launches are y = mood of the block + δ z + noise. The slow-down
# δ, the moods and the variance of the noise are unknown; flat priors integrate to a law of Student
# ::
#
#     P(y | z) ∝ (z'Mz)^(−1/2) · (y'My − (z'My)² ÷ z'Mz)^(−(n − blocks − 1) ÷ 2)
#
# where M subtracts the mean of each block. So every pair, whichever commits it has, tells about δ
# and about the noise, and what the machine does to a whole block cancels.


TWO_STEPS = 0.1  # prior probability; benchmarks/commit_search.py has what it costs and finds
# The level between the two steps. Below 0: first faster, then slower by more than all; above 1: a
# part of the slow-down was taken back.
_BETWEEN = (-0.5, 0.25, 0.5, 0.75, 1.5)
Integers: TypeAlias = npt.NDArray[np.int64]
_Pair: TypeAlias = tuple[LoggedLaunch, LoggedLaunch]
_MOST_MARKS = 64  # two steps of more marks have too many places


class Reading(NamedTuple):
    """The log of a lower-is-better figure of a launch. Those of a block ran one after another."""

    block: int
    place: int
    log: float


class Suspects(msgspec.Struct, frozen=True, kw_only=True):
    """Adjacent commits, from place ``first`` to ``last``, one of which made the case slower."""

    first: int
    last: int


class Belief(msgspec.Struct, frozen=True, kw_only=True):
    """The posterior. A group is the commits after one mark up to the next one.

    Commits of a group cannot be distinguished: those before its mark cannot be launched, or are
    left out while the line is long. Innocent ones have no share of its probability.
    """

    marks: tuple[int, ...]  # places that can be asked, with those of good and bad
    innocent: Set[int] = frozenset()
    one: tuple[float, ...]  # probability of one step, in each group
    two: dict[tuple[int, int], float]  # of two steps, in these groups
    doubt: tuple[float, ...]  # variance of the level of each mark

    def group(self, number: int) -> Suspects:
        return Suspects(first=self.marks[number] + 1, last=self.marks[number + 1])

    def steps(self) -> float:
        """Return the probability of two steps."""
        return sum(self.two.values())

    def chances(self) -> list[float]:
        """Return for each commit after good the probability that it changed the level."""
        each = list(self.one)
        for pair, share in self.two.items():
            for group in pair:
                each[group] += share
        chances = [0.0] * self.marks[-1]
        for group, (low, high) in enumerate(itertools.pairwise(self.marks)):
            suspects = set(range(low + 1, high + 1)) - self.innocent
            for place in suspects:
                chances[place - 1] = each[group] / len(suspects)
        return chances

    def found(self, confidence: float) -> tuple[Suspects, ...]:
        """Return the group of the step, or of both steps, or () if none is that likely."""
        if max(self.one) >= confidence:
            return (self.group(self.one.index(max(self.one))),)
        if self.two and max(self.two.values()) >= confidence:
            first, second = max(self.two, key=self.two.__getitem__)
            return self.group(first), self.group(second)
        return ()

    def chance_of(self, suspects: Sequence[Suspects]) -> float:
        """Return the probability that exactly these groups have the steps."""
        groups = tuple(self.marks.index(each.last) - 1 for each in suspects)
        return self.one[groups[0]] if len(groups) == 1 else self.two[groups[0], groups[1]]

    def smallest(self, confidence: float) -> tuple[Suspects, float]:
        """Return the fewest adjacent commits that contain every step, with their probability."""
        total, sizes = self._within(), _sizes(self.marks, self.innocent)
        best = (sum(sizes), 0.0, 0, len(self.one))
        for low, high in itertools.combinations(range(len(self.marks)), 2):
            size = sum(sizes[low:high])
            if total[low, high] >= confidence:
                best = min(best, (size, -total[low, high], low, high))
        low, high = best[2:]
        low, high = (low, high) if best[1] else (0, len(self.one))
        return Suspects(first=self.marks[low] + 1, last=self.marks[high]), float(total[low, high])

    def _within(self) -> Floats:
        """Return [low, high]: the probability that all steps are in groups low … high − 1."""
        groups = len(self.one)
        inside = np.diag(np.asarray(self.one))
        for (first, second), share in self.two.items():
            inside[first, second] += share
        total = np.zeros((groups + 1, groups + 1))
        for low in range(groups):
            total[low, 1:] = np.cumsum(inside[low:].sum(axis=0))
        return total


def places_to_ask(length: int, innocent: Set[int] = frozenset()) -> tuple[int, ...]:
    """Return good, bad, and the suspects between them: bad stands for the last one."""
    suspects = [place for place in range(1, length + 1) if place not in innocent]
    return (0, *suspects[:-1], length)


def believe(
    length: int,
    untestable: Iterable[int],
    readings: Sequence[Reading],
    innocent: Set[int] = frozenset(),
) -> Belief:
    """Return the posterior for a line of ``length`` commits after good, not all ``innocent``.

    The readings must contain good and bad. If the line is long, the groups with the steps are
    divided as soon as they have nearly all probability.
    """
    skipped = set(untestable) - {0, length}
    possible = [place for place in places_to_ask(length, innocent) if place not in skipped]
    asked = {reading.place for reading in readings}
    marks = sorted({*_thinned(possible), *asked})
    while True:
        belief = _posterior(tuple(marks), readings, innocent)
        groups = belief.found(0.9)
        inside = [p for p in possible if any(each.first <= p < each.last for each in groups)]
        finer = sorted({*marks, *_thinned(inside)})
        if finer == marks:
            return belief
        marks = finer


def _thinned(places: Sequence[int]) -> list[int]:
    """Return at most about _MOST_MARKS of the places, with the first and the last one."""
    step = math.ceil(len(places) / _MOST_MARKS) or 1
    return [*places[::step], *places[-1:]]


def _posterior(marks: tuple[int, ...], readings: Sequence[Reading], innocent: Set[int]) -> Belief:
    levels, steps = _hypotheses(len(marks) - 1)
    index = {place: number for number, place in enumerate(marks)}
    _, blocks = np.unique([reading.block for reading in readings], return_inverse=True)
    places = np.asarray([index[reading.place] for reading in readings])
    design = np.zeros((len(readings), len(marks)))
    design[np.arange(len(readings)), places] = 1
    design, logs = (
        _centred(each, blocks) for each in (design, np.asarray([r.log for r in readings])[:, None])
    )
    asked = np.unique(places)
    inner = (design.T @ design)[np.ix_(asked, asked)]
    outer = (design.T @ logs)[asked, 0]
    seen = levels[:, asked]
    squares = np.einsum("hi,ij,hj->h", seen, inner, seen)
    rest = np.sum(logs**2) - (seen @ outer) ** 2 / squares
    freedom = len(readings) - (blocks.max() + 1) - 1
    fit = -0.5 * np.log(squares) - freedom / 2 * np.log(np.maximum(rest, 1e-12))
    with np.errstate(divide="ignore"):  # a group of innocent commits has a prior of 0
        prior = np.log(_prior(_sizes(marks, innocent), steps))
    shares = special.softmax(prior + fit)
    mean = shares @ levels
    two = np.zeros((len(marks) - 1,) * 2)
    np.add.at(two, (steps[len(two) :, 0], steps[len(two) :, 1]), shares[len(two) :])
    return Belief(
        marks=marks,
        innocent=innocent,
        one=tuple(shares[: len(two)].tolist()),
        two={pair: float(two[pair]) for pair in itertools.combinations(range(len(two)), 2)},
        doubt=tuple((shares @ (levels - mean) ** 2).tolist()),
    )


def _centred(rows: Floats, blocks: Integers) -> Floats:
    """Return the rows without the mean of their block."""
    sums = np.zeros((blocks.max() + 1, rows.shape[1]))
    np.add.at(sums, blocks, rows)
    return rows - (sums / np.bincount(blocks)[:, None])[blocks]


def _sizes(marks: Sequence[int], innocent: Set[int]) -> list[int]:
    """Return how many commits of each group may be to blame."""
    return [
        high - low - sum(low < place <= high for place in innocent)
        for low, high in itertools.pairwise(marks)
    ]


def _prior(sizes: Sequence[int], steps: Integers) -> Floats:
    """Return the prior of each hypothesis: suspects are alike, so a group has their number."""
    each = np.asarray(sizes, dtype=float)
    groups = len(each)
    two = each[steps[groups:, 0]] * each[steps[groups:, 1]]
    if not two.any():  # one group has all suspects
        return np.concatenate([each / each.sum(), two])
    return np.concatenate([(1 - TWO_STEPS) * each / each.sum(), TWO_STEPS * two / two.sum()])


@functools.lru_cache(maxsize=8)
def _hypotheses(groups: int) -> tuple[Floats, Integers]:
    """Return the level of each mark by each hypothesis, and the groups of its steps.

    The first ones have one step, in group 0, 1, 2 … The others have two.
    """
    after = (np.arange(groups + 1) > np.arange(groups)[:, None]).astype(float)  # [group, mark]
    pairs = np.asarray(list(itertools.combinations(range(groups), 2)), dtype=int).reshape(-1, 2)
    levels = [after] + [
        share * after[pairs[:, 0]] + (1 - share) * after[pairs[:, 1]] for share in _BETWEEN
    ]
    alone = np.repeat(np.arange(groups)[:, None], 2, axis=1)
    return np.vstack(levels), np.vstack([alone] + [pairs] * len(_BETWEEN))


class Level(msgspec.Struct, frozen=True, kw_only=True):
    """A ratio of two commits, with its 95 % interval."""

    ratio: float
    interval: tuple[float, float]


def levels(readings: Sequence[Reading]) -> dict[int, Level]:
    """Return each commit that was launched ÷ good, from all blocks together.

    It is a regression on commits and blocks: a commit beside bad is compared with good through
    the pairs of good and bad. Empty: too few launches.
    """
    places = sorted({reading.place for reading in readings} - {0})
    columns = np.asarray([[reading.place == place for place in places] for reading in readings])
    return dict(zip(places, _ratios(columns, readings), strict=False))


def step_ratios(readings: Sequence[Reading], steps: Sequence[Suspects]) -> list[Level]:
    """Return for each step how much it changed the level, if there is no other step."""
    columns = np.asarray([[reading.place >= step.last for step in steps] for reading in readings])
    return _ratios(columns, readings)


def _ratios(columns: npt.NDArray[np.bool_], readings: Sequence[Reading]) -> list[Level]:
    """Fit the logs by columns and blocks. Nothing is returned for too few launches."""
    if not readings:
        return []
    _, blocks = np.unique([reading.block for reading in readings], return_inverse=True)
    design = _centred(columns.astype(float), blocks)
    logs = _centred(np.asarray([reading.log for reading in readings])[:, None], blocks)[:, 0]
    freedom = len(readings) - (blocks.max() + 1) - design.shape[1]
    if freedom < 1:
        return []
    inverse = np.linalg.pinv(design.T @ design)
    fitted = inverse @ design.T @ logs
    variance = float(np.sum((logs - design @ fitted) ** 2)) / freedom
    reach = special.stdtrit(freedom, 0.975) * np.sqrt(variance * np.diag(inverse))
    return [
        Level(ratio=math.exp(log), interval=(math.exp(log - half), math.exp(log + half)))
        for log, half in zip(fitted.tolist(), reach.tolist(), strict=True)
    ]


# The log of a search. Its arms are places of the line: "0" is good.


def open_commit_log(line: CommitLine, case_id: str, environment: Environment) -> Log:
    """Open the log of a search in the cache, so that whoever asks the same goes on with it.

    Close it. Raises ResultsError.
    """
    question = {
        "repository": line.repository,
        "good": line.commits[0].hash,
        "bad": line.commits[-1].hash,
        "case": case_id,
    }
    conditions: Conditions = {
        **environment.conditions(),
        "ddp_perf": version("ddp-perf"),
    }
    if line.what == "commit":
        conditions["commit"] = None  # it is that of the user's tree, which is not measured
    else:  # a launch is known by the place of its version, and the index may have others by now
        conditions["versions"] = " ".join(commit.short for commit in line.commits)
        conditions["sources of the project"] = digest_of_sources(Path(line.repository))
    return open_log(cache_shelf("bisect", 0, os.environ).path, question, conditions)


def place_of(launch: LoggedLaunch) -> int:
    """Return the place of its commit on the line."""
    return int(launch.arm)


# The search as a function of its launches: what they show so far, and which pair comes next.
#
# First good and bad are launched in pairs, until bad is shown to be slower. Then a commit is
# launched beside good and beside bad in turn. The median search has an eighth to a quarter fewer
# launches than with all three in one block (benchmarks/commit_search.py).


_MOST_PAIRS = 40  # of good and bad
_LOOKS = plan_pair_looks(_MOST_PAIRS)
_ALPHA = 0.01  # of a slow-down that is not there
CONFIDENCE = 0.95  # probability from which on a commit is to blame
_TOLERANCE = 0.01  # bad is equivalent to good within it: there is nothing to find
# A launch in a slow mode makes one commit look slow, and the search ends there: all before it are
# fast. So both commits beside a step are launched this often before it is believed.
_CONFIRMED = 3


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A line of commits of which good is at place 0 and bad at ``length``."""

    length: int
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


class SearchState(msgspec.Struct, frozen=True, kw_only=True):
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


def search_state(
    question: Question, launches: History, *, earlier: int = 0, ended: bool = False
) -> SearchState:
    """Return what the launches show. ``ended``: there will be no more, so that the duel is judged.

    Only finished launches are given, so that a search may end and go on anywhere. As many as
    ``earlier`` of them are of earlier runs: a commit that failed in these is launched once more
    before it is said that it cannot be told from the culprit.
    """
    ends = pairs_of(launches, "0", str(question.length))
    metric, why, duel = _duel(ends, ended=ended)
    untestable = _untestable(launches)
    if duel.outcome is not DuelOutcome.SLOWER:
        more = duel.outcome is DuelOutcome.UNDECIDED and duel.pairs < _LOOKS[-1]
        ask = (0, question.length) if more else None
        return SearchState(metric=metric, why=why, duel=duel, untestable=untestable, ask=ask)
    readings = _readings(launches, metric)
    belief = believe(question.length, untestable, readings, question.innocent)
    suspects = belief.found(CONFIDENCE)
    often = Counter(reading.place for reading in readings)
    place = unconfirmed = _unconfirmed(question, suspects, untestable, often)
    if place is None:
        tried = {place_of(launch) for launch in launches[earlier:]}
        place = (
            _untried(suspects, untestable, tried)
            if suspects
            else _next_place(question, belief, untestable, often)
        )
    return SearchState(
        metric=metric,
        why=why,
        duel=duel,
        untestable=untestable,
        readings=readings,
        belief=belief,
        suspects=suspects if unconfirmed is None else (),
        ask=None if place is None else (place, min((0, question.length), key=often.__getitem__)),
    )


def _duel(ends: Sequence[_Pair], *, ended: bool) -> tuple[str, str, PairedVerdict]:
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


def _metrics(ends: Sequence[_Pair]) -> tuple[list[str], str]:
    """Return the yardstick and the other metric, chosen by good's launches of the first look."""
    wall, cpu = STEP_TIME.name, CPU_TIME.name
    if not all(cpu in launch.values for pair in ends for launch in pair):
        return [wall], "it is the only one on a GPU"
    if len(ends) < _LOOKS[0]:
        return [wall, cpu], "too few launches to choose"
    good = [pair[0].values for pair in ends[: _LOOKS[0]]]
    chosen = choose_yardstick([each[wall] for each in good], [each[cpu] for each in good])
    return sorted([wall, cpu], key=lambda name: name != chosen.metric), chosen.reason


def _log_ratio(pair: _Pair, metric: str) -> float:
    good, bad = pair
    return math.log(bad.values[metric] / good.values[metric])


def _readings(launches: History, metric: str) -> tuple[Reading, ...]:
    return tuple(
        Reading(block=one.block, place=place_of(one), log=math.log(one.values[metric]))
        for block in blocks_of(launches)
        for one in block.values()
        if len(block) > 1
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


def _untestable(launches: History) -> dict[int, str]:
    """Return why a commit cannot be launched, for each that failed more often than it did not."""
    reasons = {place_of(one): failure_line(one.failure) for one in launches if one.failure}
    failed = Counter(place_of(launch) for launch in launches if launch.failure is not None)
    worked = Counter(place_of(launch) for launch in launches if launch.failure is None)
    return {place: why for place, why in reasons.items() if failed[place] > worked[place]}


def failure_line(failure: LaunchFailure) -> str:
    """Return the failure in one line, with the exception of the rank if there is one."""
    lines = failure.traceback.strip().splitlines()
    if lines and lines[-1] not in failure.detail:
        return f"{failure.detail}: {lines[-1]}"
    return failure.detail


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
