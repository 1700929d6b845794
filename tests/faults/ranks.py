"""Faults of ranks: each is played in one rank of a session, and what the user sees is noted."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from ddp_perf.core.launch import FACTS, LaunchFailure, LaunchRequest, LaunchResult
from ddp_perf.core.measurement import Measurement
from ddp_perf.launch.server_launcher import ServerLauncher
from ddp_perf.session.gate.exact import judge_loss
from ddp_perf.session.measure.experiment import open_log
from ddp_perf.session.measure.rounds import run_plan
from tests.builders import make_request, make_scripts
from tests.faults.leaks import leaked, present
from tests.faults.matrix import Tried
from tests.faults.rank_places import Setting
from tests.suites import make_bench

WORKLOADS = Path(__file__).parents[1] / "system/workloads"
_MEMORY = Path("/sys/fs/cgroup/memory")
SMALL_GROUP = _MEMORY / "ddp-perf-faulty"  # of faulty.py
_SMALL = 2**28
_LONGEST_SEEN = 200  # characters
# A busy machine has more timed steps, until enough are clean: the probe is longer than they.
_AFTER = 400
_PROBE_STEPS = 500
MOMENTS = {"at the first step": 1, "in the middle": 8, "after the timed steps": _AFTER}
_TIMED = ("at the first step", "in the middle")
_HANGS_S = 2.0  # until a hang is one
# A fault that ends a rank needs no deadline, which a busy machine may miss.
_PATIENT_S = 60.0


class RankFault(msgspec.Struct, frozen=True, kw_only=True):
    """A fault of a rank, by its name in workloads/faulty.py, and what must be said of it."""

    name: str
    words: str  # for the user
    kind: str  # of the failure, or "loss" or "nothing"
    said: str
    moments: tuple[str, ...] = tuple(MOMENTS)
    runs_in_scripts: bool = True

    def names(self, rank: int | None, ranks: int) -> bool:
        """Return whether this rank may be named. Of two, nobody knows which one is wrong."""
        if self.name == "wide-model":  # DDP names both ranks in the error of either
            return rank is not None
        return rank == (None if self.kind == "disagreement" and ranks == 2 else 1)

    def deadline_s(self, moment: str) -> float:
        """Return how long the launch may take to notice it."""
        if self.kind != "hang":
            return 0.0
        return 3 * _HANGS_S if MOMENTS[moment] == 1 else _HANGS_S


_BROKEN = "ValueError: the data are broken"
_SLEEPING = "the process is sleeping (S)"
FAULTS = (
    *(
        RankFault(name=name, words=words, kind=kind, said=said)
        for name, words, kind, said in (
            ("raise", "a rank raises an error", "exception", _BROKEN),
            ("long-error", "a rank raises an error of 10 MB", "exception", "broken data: xxx"),
            ("exit-0", "a rank exits with code 0", "exit", "exited with code 0 before it"),
            ("os-exit", "a rank exits with code 3", "exit", "exited with code 3"),
            ("kill", "SIGKILL of a rank", "signal", "killed by SIGKILL"),
            ("segfault", "SIGSEGV in a rank", "signal", "killed by SIGSEGV"),
            ("stop", "SIGSTOP of a rank", "hang", "the process is stopped (T)"),
            ("loop", "an endless loop in Python", "hang", "the process is running (R)"),
            ("loop-in-c", "a wait in C that keeps Python's lock", "hang", _SLEEPING),
            ("hang", "a rank waits for ever", "hang", _SLEEPING),
            ("skip-collective", "a rank waits in another collective", "hang", _SLEEPING),
            ("out-of-memory", "a rank takes too much memory", "signal", "killed by SIGKILL"),
            ("out-of-descriptors", "a rank opens too many files", "exception", "Too many open"),
            ("out-of-space", "/dev/shm is full", "exception", "No space left on device"),
            ("flood", "a rank prints 1 GB", "exception", _BROKEN),
            ("daemon", "a rank leaves a daemon", "exception", _BROKEN),
            (
                "other-shape",
                "a tensor of another shape in a collective",
                "signal",
                "op.preamble.length",
            ),
        )
    ),
    RankFault(
        name="exit",
        words="a rank calls sys.exit(3)",
        kind="exit",
        said="exited with code 3",
        moments=_TIMED,
        runs_in_scripts=False,  # there it is an end of the script, at its line
    ),
    RankFault(
        name="wide-model",
        words="a rank has a model of another shape",
        kind="exception",
        said="DDP expects same model across all ranks",
        moments=("at the first step",),
        runs_in_scripts=False,
    ),
    RankFault(
        name="tamper",
        words="the parameters of a rank differ",
        kind="disagreement",
        said="parameters differ from the other ranks' after the last step",
        moments=_TIMED,
    ),
    RankFault(
        name="nan",
        words="the loss is NaN",
        kind="loss",
        said="is NaN or infinite",
        moments=_TIMED,
        runs_in_scripts=False,  # whose losses are not read
    ),
    RankFault(
        name="large-result",
        words="a rank returns 100 MB",
        kind="nothing",
        said="every fact is there",
        moments=_TIMED,
        runs_in_scripts=False,
    ),
)


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where launches run: warm servers, and what was there when they were warm."""

    setting: Setting
    launcher: ServerLauncher
    before: frozenset[str] = frozenset()

    def names(self, failure: LaunchFailure) -> bool:
        """Return whether a failure has the node of its rank, if there are nodes."""
        nodes = self.launcher.nodes(self.request(None).case)
        return failure.node == (nodes[failure.rank] if nodes and failure.rank is not None else None)

    def request(
        self, fault: RankFault | None, moment: str = "in the middle", noted: Path | None = None
    ) -> LaunchRequest:
        """Return the launch of a case with this fault, which writes its time to ``noted``.

        None: the other case of the session, which has none.
        """
        at_step = MOMENTS[moment]
        model = {"fault": "nothing" if fault is None else fault.name, "at_step": at_step}
        if noted is not None:
            model["noted"] = str(noted)
        deadline_s = _HANGS_S if fault is not None and fault.kind == "hang" else _PATIENT_S
        fields = {
            "world_sizes": [self.setting.ranks],
            "batch_sizes": [8 if fault is None else 4],
            "start_deadline_s": 3 * deadline_s if at_step == 1 else _PATIENT_S,
            "step_deadline_s": deadline_s,
        }
        request = make_request("faulty:build", WORKLOADS, model=model, **fields)
        case = request.case
        if self.setting.runs_script:
            options = [f"--{name.replace('_', '-')}={value}" for name, value in model.items()]
            args = ["--batch-size={batch_size}", *options]
            (case,) = make_scripts(script=str(WORKLOADS / "faulty_script.py"), args=args, **fields)
        nodes = len(self.launcher.nodes(case)) or 1
        return msgspec.structs.replace(
            request,
            case=msgspec.structs.replace(case, nodes=nodes),
            probe_steps=_PROBE_STEPS if at_step == _AFTER else request.probe_steps,
        )


@contextlib.contextmanager
def place(setting: Setting) -> Iterator[Place]:
    with setting.engine() as engine, contextlib.closing(ServerLauncher(engine)) as launcher:
        here = Place(setting=setting, launcher=launcher)
        launcher.launch(here.request(None))
        yield msgspec.structs.replace(here, before=present())


class _Noting:
    """A launcher that keeps each outcome, and when it came."""

    def __init__(self, launcher: ServerLauncher) -> None:
        self._launcher = launcher
        self.outcomes: list[LaunchFailure | LaunchResult] = []
        self.ends: list[float] = []

    def launch(self, request: LaunchRequest) -> LaunchFailure | LaunchResult:
        outcome = self._launcher.launch(request)
        self.ends.append(time.monotonic())
        self.outcomes.append(outcome)
        return outcome


def play(fault: RankFault, moment: str, place: Place) -> Tried:
    """Play a fault between two launches of another case of the same session."""
    with tempfile.TemporaryDirectory() as name, _small_group(fault):
        directory = Path(name)
        noted = directory / "noted"
        good, faulty = place.request(None), place.request(fault, moment, noted)
        noting = _Noting(place.launcher)
        measured = _session(noting, good, faulty, directory)
        lost = _lost(noting, measured, directory)
        struck = float(noted.read_text(encoding="utf-8"))
    _, outcome, _ = noting.outcomes
    seen = _seen(outcome)
    return Tried(
        fault=fault.words,
        where=f"{moment}, {place.setting.ranks} ranks, {place.setting.name}",
        seen=seen.splitlines()[0][:_LONGEST_SEEN],
        kept="the launches before it, the servers",
        survived=_is_named(fault, moment, outcome, seen, place)
        and len(measured[good.case.id].launches) == 2,
        lost=lost,
        leaked=leaked(place.before),
        noticed_s=noting.ends[1] - struck,
    )


def _session(
    noting: _Noting, good: LaunchRequest, faulty: LaunchRequest, directory: Path
) -> dict[str, Measurement]:
    """Measure the rounds of a session, of which the second has no faulty launch."""
    plan = [good, faulty, msgspec.structs.replace(good, round=1)]
    none = {
        one.case.id: Measurement(case=one.case, launches=(), failures=()) for one in (good, faulty)
    }
    with contextlib.closing(open_log(directory, {}, {})) as log:
        bench = make_bench(directory, noting)
        return run_plan(plan, bench, measured=none, on_round=lambda measured: None, log=log)


def _lost(noting: _Noting, measured: dict[str, Measurement], directory: Path) -> int:
    """Return how many launches are not in the session's result, or not in its log."""
    with contextlib.closing(open_log(directory, {}, {})) as log:
        logged = [launch.result or launch.failure for launch in log.entries]
    kept = [one for case in measured.values() for one in (*case.launches, *case.failures)]
    return sum(one not in logged or one not in kept for one in noting.outcomes)


def _is_named(
    fault: RankFault,
    moment: str,
    outcome: LaunchFailure | LaunchResult,
    seen: str,
    place: Place,
) -> bool:
    if isinstance(outcome, LaunchFailure):
        named = fault.said in seen and fault.names(outcome.rank, place.setting.ranks)
        return named and outcome.kind == fault.kind and place.names(outcome)
    if fault.kind == "loss":
        return fault.said in seen
    if fault.kind == "nothing":
        return outcome.ranks[1].ddp_logging == {"note": "x" * 10**8} and fault.said in seen
    # The times are there; what could not be examined says why.
    return MOMENTS[moment] == _AFTER and seen.startswith("rank 1: ") and fault.said in seen


def _seen(outcome: LaunchFailure | LaunchResult) -> str:
    if isinstance(outcome, LaunchFailure):
        return str(outcome)
    reasons = [why for fact in FACTS if (why := outcome.why_missing(fact)) is not None]
    if not all(loss is not None for loss in outcome.losses.values()):
        reasons.append(judge_loss([outcome], {}, tolerance=0.0).reason)
    return next(iter(reasons), "every fact is there")


def obstacle_to(fault: RankFault) -> str | None:
    """Return why a fault cannot be played here; None: it can be."""
    if fault.name == "out-of-memory":
        return _small_group_obstacle()
    if fault.name == "out-of-space":
        refused = subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False)
        return "a process may not mount a /dev/shm of its own" if refused.returncode else None
    return None


def _small_group_obstacle() -> str | None:
    try:
        SMALL_GROUP.mkdir()
    except OSError as error:
        return f"{SMALL_GROUP} cannot be made: {error.strerror}"
    SMALL_GROUP.rmdir()
    return None


@contextlib.contextmanager
def _small_group(fault: RankFault) -> Iterator[None]:
    if fault.name != "out-of-memory":
        yield
        return
    SMALL_GROUP.mkdir()
    try:
        (SMALL_GROUP / "memory.limit_in_bytes").write_text(str(_SMALL), encoding="utf-8")
        yield
    finally:
        SMALL_GROUP.rmdir()
