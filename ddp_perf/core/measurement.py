"""The measurement of one case in a session, and the findings about it."""

from __future__ import annotations

from typing import Literal

import msgspec

from ddp_perf.core.baseline import Acknowledgement
from ddp_perf.core.case import Case
from ddp_perf.core.decomposition import Decomposition
from ddp_perf.core.gpu import ClockName
from ddp_perf.core.launch import LaunchFailure, LaunchResult
from ddp_perf.core.note import Note, NoteKind
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
    decomposition: Decomposition | None = None  # None: no probe
    overhead_s: float  # of the launch, outside its timed steps
    node: str | None = None  # None: the launch was for any node
    clocks_mhz: dict[ClockName, float] = {}  # under load, of the GPU with the lowest; {}: unknown

    @property
    def turn(self) -> tuple[int, str | None]:
        """Its round and node: launches of other cases with the same ones ran just beside it."""
        return self.round, self.node


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """All launches of one case in one session.

    With ``nodes`` each of them launches the case by itself. One that fails is not launched again,
    and does not fail the case as long as another one is there.
    """

    case: Case
    launches: tuple[LaunchResult, ...]
    failures: tuple[LaunchFailure, ...]
    nodes: tuple[str, ...] = ()  # (): the nodes are not measured one by one

    @property
    def failed(self) -> bool:
        """True if a launch failed, of nodes that are measured one by one if each of them failed."""
        healthy = set(self.nodes) - {failure.node for failure in self.failures}
        return bool(self.failures) and not healthy

    @property
    def is_complete(self) -> bool:
        """True if the case has launches that can be judged."""
        return bool(self.launches) and not self.failed

    def on_node(self, node: str) -> Measurement:
        """Return the launches and failures of one node."""
        return msgspec.structs.replace(
            self,
            launches=tuple(launch for launch in self.launches if launch.node == node),
            failures=tuple(failure for failure in self.failures if failure.node == node),
        )


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """An interim look: the verdict before more launches were added."""

    launches: int
    verdict: Verdict


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """The acknowledgement of a regression, and its state in this session."""

    acknowledgement: Acknowledgement
    state: Literal["expected", "grown", "expired", "over"]  # "grown": slower than acknowledged


class NodeFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One of the nodes that launched a case by itself, beside the others."""

    node: str
    ratio: float | None = None  # of its step to that of the others; None: it is not compared
    slower: float | None = None  # the same over its sessions since it became slow, this one last
    sessions: int = 0  # of the node since it became slow, with this one; 0: it is not slow
    is_suspect: bool = False  # it is slow for the first time: chance, unless it is slow again
    since: str | None = None  # the date of the first of them; None: it is this one, or not slow
    failure: str | None = None  # of a launch
    disturbance: str | None = None  # of its launches

    @property
    def is_slow(self) -> bool:
        return self.sessions > 0


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict on one metric of one case, with the compared figures.

    The reason of the verdict is that of the rule that compared them; `reason` has the notes, too.
    """

    case_id: str
    metric: str
    verdict: Verdict
    notes: tuple[Note, ...] = ()  # of the stages after the rule, in their order
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
    known: Known | None = None  # None: not acknowledged
    unmeasured: int = 0  # sessions before this one, in a row, without a valid figure of the metric
    as_acknowledged: bool = False  # of an exact metric: what was acknowledged is what was measured
    drift: float | None = None  # this session ÷ the first one ever saved, over all re-baselines
    target: Target | None = None  # that `value` is judged by, instead of a baseline
    value_interval: tuple[float, float] | None = None  # 99 %, of `value` over the launches
    flops: tuple[int, int] | None = None  # of a step: stored, and now; of the metric "structure"
    nodes: tuple[NodeFinding, ...] = ()  # of the metric "nodes": each of them, the slowest first

    @property
    def is_expected(self) -> bool:
        """True if it is a regression that was acknowledged until a date that is not over."""
        return self.known is not None and self.known.state == "expected"

    @property
    def reason(self) -> str:
        """The sentence of the rule, with the text of each note: why the verdict is so."""
        text = self.verdict.reason
        for note in self.notes:
            text = note.added_to(text)
        return text

    @property
    def excuse(self) -> Note | None:
        """The note that made it INVALID, since its launches are worthless; None: none did."""
        newest = next((note for note in reversed(self.notes) if note.was is not None), None)
        return newest if self.verdict.outcome is Outcome.INVALID else None

    def noted(
        self, kind: NoteKind, *facts: str, outcome: Outcome | None = None, **figures: int | None
    ) -> Finding:
        """Return the finding with a note, and with the outcome and the figures that it changes.

        More launches do not change an outcome that a stage gives, unless the figures state them.
        """
        verdict, was = self.verdict, None if outcome is None else self.verdict.outcome
        if outcome is not None:
            figures = {"more_launches": None, "likely_launches": None, **figures}
            verdict = msgspec.structs.replace(verdict, outcome=outcome, **figures)
        notes = (*self.notes, Note(kind=kind, facts=facts, was=was))
        return msgspec.structs.replace(self, verdict=verdict, notes=notes)
