"""The launcher of a session, what its launches have in common, and the user's policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from ddp_perf.baselines.save import SaveMode
from ddp_perf.baselines.store import BaselineStore
from ddp_perf.core.injection import Injection
from ddp_perf.core.launch import LaunchFailure, LaunchRequest, LaunchResult
from ddp_perf.launch.launcher import Launcher
from ddp_perf.session.measure.code import UNKNOWN_CODE, SessionCode
from ddp_perf.system.capacity import Capacity

LaunchOutcome = LaunchResult | LaunchFailure


class Progress(Protocol):
    """An observer of a suite: of the launches that are planned, and of their outcomes."""

    def begin(
        self, suite: str, plan: Sequence[LaunchRequest], expected_s: Mapping[str, float]
    ) -> None:
        """Note a plan. ``expected_s``: of a launch, by id of each case that was timed before."""

    def extend(self, plan: Sequence[LaunchRequest], why: str, *, judged: bool) -> None:
        """Note further launches. Those that are not judged follow all that are."""

    def launched(self, request: LaunchRequest, outcome: LaunchOutcome) -> None:
        """Note an outcome. A case that failed is not launched again."""

    def end(self) -> None: ...


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """The options of pytest that a session follows. To add one, add it here and in the options."""

    budget_s: float  # seconds of launches for each case, if it needs more than the suite's
    explain_budget_s: float  # seconds of further launches for each case that became slower
    save_mode: SaveMode | None = None  # None: nothing is stored
    reason: str | None = None  # required by save_mode "accept"
    begins: bool = True  # a level of a case without sessions; False: "append" of a strict session
    profile_steps: int | None = None  # of one more launch of each case; None: no profile
    accept_improvements: bool = True  # a settled one becomes the level, if sessions are appended


class Bench(msgspec.Struct, frozen=True, kw_only=True):
    """What a session measures with: its launcher, the machine, the store, and its code."""

    launcher: Launcher
    progress: Progress
    capacity: Capacity
    store: BaselineStore
    code: SessionCode = UNKNOWN_CODE  # what a stored session is remembered by
    root: Path  # where the measured code is checked out; its artifacts/ receive what ranks write
    import_paths: tuple[str, ...] = ()  # where ranks import a user's workload from
    injections: tuple[Injection, ...] = ()  # a case gets those that apply to it
    nodes: tuple[str, ...] = ()  # that a launch can be sent to, by name; (): there is one machine
    each_node: bool = False  # the nodes are alike, and each of them launches every case

    @property
    def one_by_one(self) -> tuple[str, ...]:
        """The nodes of which each launches every case by itself; (): a case is launched on any."""
        return self.nodes if self.each_node else ()
