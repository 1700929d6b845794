"""Verdicts: of the judge on one metric of a case, of a duel and of an audit, and their causes."""

from __future__ import annotations

import enum
from typing import Literal, NamedTuple

import msgspec

from ddp_perf.core.case import Tier
from ddp_perf.core.work import Site

FALSE_ALARM_RATE = 0.01  # of a session, a comparison or a duel in which nothing became slower

# The verdict of the judge on one metric of one case.


TestEnd = Literal["passes", "fails", "skips", "warns"]


class Outcome(str, enum.Enum):
    """The possible outcomes. The worst comes first, and represents a case among its verdicts."""

    REGRESSION = "REGRESSION"
    BAD_NODE = "BAD NODE"
    MISSES_TARGET = "MISSES TARGET"
    INCOMPARABLE = "INCOMPARABLE"
    NO_BASELINE = "NO_BASELINE"
    INVALID = "INVALID"
    SUSPECT = "SUSPECT"
    UNDECIDED = "UNDECIDED"
    PASS = "PASS"
    IMPROVEMENT = "IMPROVEMENT"
    MEETS_TARGET = "MEETS TARGET"

    @property
    def severity(self) -> int:
        """The place of the outcome, 0 being that of the worst."""
        return list(Outcome).index(self)

    @property
    def meaning(self) -> str:
        return _TRAITS[self].meaning

    @property
    def test(self) -> TestEnd:
        """The end of a test that asserts it."""
        return _TRAITS[self].test

    @property
    def is_good(self) -> bool:
        return self.test == "passes"

    @property
    def fails(self) -> bool:
        """True if a test that asserts it fails, unless the session stored what it lacks."""
        return self.test == "fails"

    @property
    def skips(self) -> bool:
        return self.test == "skips"

    @property
    def is_compared(self) -> bool:
        """True if there was something to compare with."""
        return _TRAITS[self].against != "nothing"

    @property
    def compares_sessions(self) -> bool:
        """True if the session was compared with stored ones, and not with a target or nodes."""
        return _TRAITS[self].against == "sessions"

    @property
    def is_red(self) -> bool:
        """True if something is known to be worse."""
        return self.fails and self.is_compared

    @property
    def is_slower(self) -> bool:
        """True if the session is slower, for certain or possibly."""
        return _TRAITS[self].slower

    @property
    def is_open(self) -> bool:
        """True if more launches of the same session may still change it."""
        return _TRAITS[self].open


class _Traits(NamedTuple):
    meaning: str
    test: TestEnd
    against: Literal["sessions", "target", "nodes", "nothing"] = "sessions"
    slower: bool = False
    open: bool = False


_TRAITS = {
    Outcome.REGRESSION: _Traits(
        "slower, significantly and by the tolerance at least", "fails", slower=True
    ),
    Outcome.BAD_NODE: _Traits(
        "a node is slower than the others, or failed alone: not the code", "fails", "nodes"
    ),
    Outcome.MISSES_TARGET: _Traits(
        "a figure is on the bad side of its target, whatever the baseline contains",
        "fails",
        "target",
    ),
    Outcome.INCOMPARABLE: _Traits(
        "there are only figures of other work or of another machine", "fails", "nothing"
    ),
    Outcome.NO_BASELINE: _Traits(
        "there is nothing to compare with; STORED if this session stored it", "fails", "nothing"
    ),
    Outcome.INVALID: _Traits(
        "the launches were disturbed; the reason states by what", "skips", open=True
    ),
    Outcome.SUSPECT: _Traits(
        "slower, but not beyond doubt: some sessions in a row with this result fail",
        "warns",
        slower=True,
        open=True,
    ),
    Outcome.UNDECIDED: _Traits(
        "this session cannot decide; the reason states what it rules out",
        "skips",
        open=True,
    ),
    Outcome.PASS: _Traits("a slow-down of twice the tolerance is ruled out", "passes"),
    Outcome.IMPROVEMENT: _Traits("the case got faster", "passes"),
    Outcome.MEETS_TARGET: _Traits("a figure is on the good side of its target", "passes", "target"),
}


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict: the outcome, its reason, and the figures behind it.

    ``ratio`` is current ÷ baseline of a lower-is-better metric (1.05: 5 % slower), and
    ``interval`` is its confidence interval. ``upper`` is its one-sided 99.5 % upper bound, over all
    looks: the session rules out what is slower. ``minimum_detectable`` is the minimum detectable
    effect: the smallest slow-down, as a fraction (0.04: 4 %), that this comparison finds with
    90 % power. Each is None if the data do not give it. ``more_launches`` is about the number of
    further launches of this session that would decide the verdict if the ratio stays the same;
    None if it is decided, or if no number would decide it. ``likely_launches`` decide an
    UNDECIDED verdict nine times in ten, because they allow for a ratio that moves; None if not
    even 100 do. ``more_sessions`` is the same as ``more_launches`` in further baseline sessions,
    where launches do not decide it; the ratio and the spread never stay the same, so it shows only
    whether sessions may decide it. ``assumed_sd`` is what sessions were assumed to differ by, for
    want of enough of them. ``chance`` is the probability of a SUSPECT session if nothing changed.
    ``off_level`` are the indexes of the baseline sessions on the slower side of a move within the
    reference.
    """

    outcome: Outcome
    reason: str
    ratio: float | None = None
    interval: tuple[float, float] | None = None
    upper: float | None = None
    minimum_detectable: float | None = None
    more_launches: int | None = None
    likely_launches: int | None = None
    more_sessions: int | None = None
    assumed_sd: float | None = None
    chance: float | None = None
    off_level: tuple[int, ...] | None = None


class SessionPrior(msgspec.Struct, frozen=True, kw_only=True):
    """The prior of the between-session spread, from the other cases of the machine.

    ``sd`` is on the log scale (0.01: sessions differ by about 1 %). ``degrees_of_freedom`` is its
    weight, as a number of sessions (Smyth 2004: s0 and d0). An ``assumed`` one is from other
    machines, and is used only until the case has three sessions.
    """

    sd: float
    degrees_of_freedom: float
    assumed: bool = False


# The explanation of a slower case: causes, each with its share and its evidence.


CauseKind = Literal[
    "compute",
    "communication",
    "more communication",
    "smaller buckets",
    "other collectives",
    "lost overlap",
    "straggler",
    "slow node",
    "data",
    "host",
    "host sync",
    "memory",
    "machine",
    "unexplained",
]
# The evidence of each. What separates two causes of one term is in `diagnose/causes.py`.
CAUSES: dict[CauseKind, str] = {
    "compute": "forward, backward or optimizer grew",
    "communication": "the collectives alone take longer, too, by at least half of the change",
    "more communication": "counted: collectives with more bytes, or more of them",
    "smaller buckets": "counted: the same bytes in more pieces",
    "other collectives": "counted, and no term shows their time",
    "lost overlap": "the step pays more for the same collectives, which alone explain less of it",
    "straggler": "imbalance, and at least half of it is the lag of one rank, in every launch",
    "slow node": "the same, and all ranks of one node lag",
    "data": "the wait for the batch grew",
    "host": "the rank had no core, or ranks are late in turn",
    "host sync": "the host waits for more values a step, as by `.item()`",
    "memory": "compute grew, and the GPU's allocator freed its cache in the profiled steps",
    "machine": "the control slowed down with the same software, or other processes took cores",
    "unexplained": "no term changed enough, or the later steps that are profiled are not slower",
}


FigureUnit = Literal["s", "count"]

# The keys of files have the unit, because these contain terms only, which are seconds.
_KEYS = {"before": "before_s", "after": "after_s", "uncertainty": "uncertainty_s"}


class Delta(msgspec.Struct, frozen=True, kw_only=True, rename=_KEYS):
    """The change of one figure of a step, or of a group of terms, against the baseline."""

    name: str
    unit: FigureUnit = "s"
    before: float
    after: float
    # Chance alone causes at most this change, except in one of twenty cases for any group of terms.
    uncertainty: float

    @property
    def change(self) -> float:
        """The difference, after minus before."""
        return self.after - self.before

    @property
    def is_certain(self) -> bool:
        """True if the change is larger than its uncertainty."""
        return abs(self.change) > self.uncertainty


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """One cause of a longer or shorter step, with its size and its evidence."""

    kind: CauseKind
    change_s: float
    share: float  # share of the step's change
    evidence: tuple[str, ...]
    rank: int | None = None  # the straggler
    likely: bool = False  # the largest change, but chance may explain it


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """The explanation of one case that became slower."""

    case_id: str
    step_change_s: float
    causes: tuple[Cause, ...]  # the largest first
    terms: tuple[Delta, ...]
    launches: int  # launches of this session that it uses


# An audit of the gate: launches that a hidden size slowed, and what the gate called them.


Stage = Literal["sessions", "pairs"]  # stored sessions, or pairs of launches beside them


class GateAudit(msgspec.Struct, frozen=True, kw_only=True):
    """The audit at the end of one session. It is no session, and its verdict none of the night."""

    date: str  # ISO 8601, UTC
    suite: str
    case_id: str
    tier: Tier
    accelerator: str  # the key that names its baseline file
    host: str
    commit: str | None  # of the audited code
    torch: str
    seed: int  # draws the case and the size
    size: float  # 0.05: the step was slowed by 5 %; 0: it was not slowed
    tolerance: float  # of the step time: less is not meant to be red
    outcome: Outcome  # the worst of the case's metrics
    ratio: float | None  # of the step time that was found
    interval: tuple[float, float] | None  # of the ratio, 99 % or as the pairs have it
    stage: Stage  # the one that decided
    seconds: float  # of the whole audit

    @property
    def is_found(self) -> bool:
        """True if the gate called it slower."""
        return self.outcome is Outcome.REGRESSION


# The verdict of a duel on one metric of one case: side B beside side A.


class DuelOutcome(str, enum.Enum):
    """The possible outcomes: B against A."""

    FASTER = "FASTER"
    EQUIVALENT = "EQUIVALENT"
    SLOWER = "SLOWER"
    UNDECIDED = "UNDECIDED"

    @property
    def meaning(self) -> str:
        return _MEANINGS[self]


_MEANINGS = {
    DuelOutcome.FASTER: "the interval of B ÷ A lies below 1",
    DuelOutcome.EQUIVALENT: "the interval lies within ± the tolerance",
    DuelOutcome.SLOWER: "the interval lies above 1",
    DuelOutcome.UNDECIDED: "neither; the last lines state how many more pairs may decide it",
}


class PairedVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict on pairs of launches, one of each side, and the figures behind it.

    ``ratio`` is B ÷ A of a lower-is-better metric (1.05: B is 5 % slower), and ``interval`` its
    confidence interval, valid at whichever look the test stopped. ``minimum_detectable`` is the
    smallest slow-down, as a fraction, that all planned pairs find nine times in ten. ``apart`` of
    the pairs lie so far from the others that a launch was in a slow mode: they do not count.
    ``more_pairs`` is about the number of further pairs that would decide it if the ratio and the
    spread stay the same; None if it is decided, or if no number of up to a thousand would.
    """

    outcome: DuelOutcome
    reason: str  # one sentence, without a remedy
    pairs: int
    ratio: float | None = None
    interval: tuple[float, float] | None = None
    confidence: float | None = None  # of the interval: 0.9 if EQUIVALENT, else 1 − 2 alpha
    apart: int = 0
    minimum_detectable: float | None = None
    more_pairs: int | None = None


# The culprit that a search after a red gate finds: a commit, a package or a variable.


class Culprit(msgspec.Struct, frozen=True, kw_only=True):
    """A commit, package or variable that made a case slower, as far as a search could tell."""

    kind: Literal["commit", "package", "variable"]
    name: str  # the hash of a commit; "torch 2.12 → 2.13"
    title: str = ""  # the subject of a commit
    author: str = ""
    probability: float
    ratio: float | None = None  # of the metric, with it ÷ without it; None: nothing was launched
    interval: tuple[float, float] | None = None  # 95 %
    launches: int
    seconds: float
    why: str  # what the search rests on, without a full stop


# The second stage of a session: the code of a stored session ran beside today's.


class Settled(msgspec.Struct, frozen=True, kw_only=True):
    """The findings of the second stage on one case. Its verdicts are in the suite's findings."""

    reference: str | None  # date of the stored session; None: no stored session has its code
    label: str = ""  # the same for people, with the commit
    commit: str | None = None
    changed: tuple[str, ...] = ()  # since then: files, packages, variables
    unchanged: bool = False  # nothing that can run again changed: it was not launched
    # It is red, and its code is that of the newest red session: it was not launched.
    as_before: bool = False
    machine: tuple[str, ...] = ()  # of unchanged code: what differs is the machine's
    pairs: int = 0  # of launches
    seconds: float = 0.0
    lines: tuple[Site, ...] = ()  # edited ones that do more; the costliest first
    causes: tuple[str, ...] = ()  # what a slower case does otherwise, in words
    searched: bool = False  # the commits since were searched for the one that made it slower
    culprit: Culprit | None = None  # that the search found; None: it found none, or there was none
    needed_s: float | None = None  # undecided: the time that would be enough
    problem: str | None = None  # why it could not be launched, or whose code was taken instead
