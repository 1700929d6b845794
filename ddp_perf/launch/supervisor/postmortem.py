"""The findings after ranks ended: who failed first, what was printed, and whether they agree."""

from __future__ import annotations

import collections
import contextlib
import os
import signal
import time
from collections.abc import Sequence
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import msgspec

from ddp_perf.core.case import Case, Tier
from ddp_perf.core.launch import (
    FailureKind,
    LaunchFailure,
    LaunchRequest,
    Placement,
    RankResult,
)
from ddp_perf.core.subject import BY_OPTIMIZER
from ddp_perf.launch.supervisor.rank import RankProcess
from ddp_perf.system.host.processes import describe_state, state_of
from ddp_perf.worker.report import BEATS_PER_STEP, STACK_SIGNAL, Phase, RankError, RankProgress

# The last collectives of the ranks of a hung launch, read from their flight recorders.


_ANSWER_S = 1.0
_LAST = 3


def flight_records(ranks: Sequence[RankProcess], directory: str | None) -> dict[str, str]:
    """Return the last collectives of each rank that answers: the oldest first, one per line.

    All records are written to ``directory``, one JSON file per rank. A rank does not answer if it
    is stopped, or if it hangs and blocks its other threads.
    """
    dumps = _ask(ranks)
    found = {}
    for rank, dump in sorted(dumps.items()):
        entries: list[dict[str, Any]] = msgspec.json.decode(dump)
        found[f"rank {rank}"] = "\n".join(map(_describe, entries[-_LAST:])) or "none recorded"
        if directory is not None:
            # The text is more important than a file that cannot be written.
            with contextlib.suppress(OSError):
                path = Path(directory) / f"rank{rank}.json"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(dump)
    return found


def _ask(ranks: Sequence[RankProcess]) -> dict[int, bytes]:
    waiting = {}
    for rank in ranks:
        with contextlib.suppress(OSError):
            rank.recorder.send_bytes(b"?")
            waiting[rank.recorder] = rank.rank
    dumps = {}
    end = time.monotonic() + _ANSWER_S
    while waiting and (ready := wait(waiting, max(end - time.monotonic(), 0))):
        for connection in ready:
            rank_number = waiting.pop(connection)  # type: ignore[call-overload]
            with contextlib.suppress(EOFError, OSError):
                dumps[rank_number] = connection.recv_bytes()  # type: ignore[union-attr]
    return dumps


def _describe(entry: dict[str, Any]) -> str:
    """Return a line about a collective, from the fields that this version of torch records."""
    shapes = " ".join(map(str, entry.get("input_sizes", ())))
    types = " ".join(map(str, entry.get("input_dtypes", ())))
    number = entry.get("collective_seq_id", entry.get("record_id", "?"))
    what = entry.get("profiling_name", "a collective")
    state = "done" if entry.get("retired") else entry.get("state", "state unknown")
    return f"#{number} {what} {shapes} {types}: {state}"


# The description of a failed launch: its rank, the cause, and the last output.


_PHASES = {
    Phase.START: "before its first timed step",
    Phase.WARM_UP: "during the warm-up, before its first timed step",
    Phase.AFTER: "after the timed steps, while it measured further steps",
}
_STACKS_S = 0.5
_OUTPUT_LINES = 20
_OUTPUT_BYTES = 2**16
_WHAT, _LONGEST_WHAT = "what():", 1000  # of std::terminate; characters of it


def describe_failure(request: LaunchRequest, ranks: Sequence[RankProcess]) -> LaunchFailure:
    """Return the failure of the rank that failed first. A rank that lost its peer is a symptom."""
    first = min((rank for rank in ranks if rank.failed), key=_order_of_failure)
    kind, detail = _cause(first)
    return LaunchFailure(
        case_id=request.case.id,
        round=request.round,
        kind=kind,
        rank=first.rank,
        detail=detail,
        traceback=first.report.traceback if isinstance(first.report, RankError) else "",
        user_frames=first.report.user_frames if isinstance(first.report, RankError) else "",
        output=_output(first),
    )


def describe_hang(request: LaunchRequest, ranks: Sequence[RankProcess]) -> LaunchFailure:
    """Return the failure of a hung launch, with the rank that the others wait for.

    That rank is a stopped one, or else the one furthest behind. No rank is named if several are
    equally far behind.
    """
    states = {rank.rank: state_of(rank.pid) for rank in ranks if rank.running}
    behind, detail = _hang(request.case, ranks, states)
    hung, *others = behind
    return LaunchFailure(
        case_id=request.case.id,
        round=request.round,
        kind="hang",
        rank=None if others else hung.rank,
        detail=detail,
        output="" if others else _output(hung),
        stacks=_stacks(ranks, states),
        collectives=flight_records(_responsive(ranks, states), request.records),
    )


def hung_examination(
    request: LaunchRequest, ranks: Sequence[RankProcess]
) -> tuple[list[RankProcess], str]:
    """Return the ranks that the others wait for after the timed steps, and what they do."""
    states = {rank.rank: state_of(rank.pid) for rank in ranks if rank.running}
    return _hang(request.case, ranks, states)


def _hang(
    case: Case, ranks: Sequence[RankProcess], states: dict[int, str | None]
) -> tuple[list[RankProcess], str]:
    behind = _behind(case.tier, [rank for rank in ranks if rank.running], states)
    hung, *others = behind
    if not others:
        who = f"the process is {describe_state(states[hung.rank])}"
    elif len(behind) == len(states):
        who = "all ranks stopped there, so no rank is named"
    else:
        names = ", ".join(str(rank.rank) for rank in behind)
        who = f"ranks {names} stopped there, the others later"
    detail = f"hung {_where(case, hung.progress)}: {who}{_remedy(case, hung.progress)}"
    return behind, detail


def _behind(
    tier: Tier, running: Sequence[RankProcess], states: dict[int, str | None]
) -> list[RankProcess]:
    """Return the ranks that are furthest behind: of the stopped ones, if there are any."""
    places = {rank.rank: place_of(tier, rank) for rank in running}
    suspects = [rank for rank in running if states[rank.rank] == "T"] or running
    last = min(places[rank.rank] for rank in suspects)
    return [rank for rank in suspects if places[rank.rank] == last]


def place_of(tier: Tier, rank: RankProcess) -> tuple[int, int]:
    """Return how far a rank has come, for comparison with other ranks of its launch.

    The hosts of GPUs run ahead until their queues are full, each at another place of a step. So
    only whole steps are compared on the gpu tier.
    """
    if tier == "cpu":
        return rank.progress.beats, 0
    return rank.progress.phase, rank.progress.step or 0


def _where(case: Case, progress: RankProgress) -> str:
    """Return the place of a rank in words, with the number of its step if that is known."""
    steps = case.schedule.steps
    if case.script is not None and _is_before_first_step(progress):
        by = case.script.steps_by
        what = "no optimizer stepped" if by == BY_OPTIMIZER else f"{by} did not return"
        return f"before its first step ({what} in {case.schedule.start_deadline_s:g} s)"
    if progress.step is None:
        return _PHASES[progress.phase]
    step = f"step {min(max(progress.step, 1), steps)} of {steps}"
    if case.tier == "gpu" and progress.step > steps:
        step = f"step {progress.step}"  # it has more of them
    if progress.step == 0:
        return f"before {step}"
    if progress.phase is Phase.TIMED and case.tier == "gpu":
        return f"while the host queued {step}, which the GPU may not have reached"
    return f"in {step}"


def _is_before_first_step(progress: RankProgress) -> bool:
    return progress.phase is Phase.START and progress.beats < BEATS_PER_STEP


def _remedy(case: Case, progress: RankProgress) -> str:
    """Return what a user can do for a script that may be fine, but slow; empty for a workload."""
    if case.script is None:
        return ""
    if not _is_before_first_step(progress):
        return "; if it evaluates or saves there, raise step_deadline_s"
    if case.script.steps_by != BY_OPTIMIZER:
        return "; raise start_deadline_s, or let steps_by name the function that ends a step"
    return (
        "; raise start_deadline_s, or name the function that ends a step: steps_by: module:function"
    )


def _order_of_failure(rank: RankProcess) -> tuple[bool, float]:
    at = rank.report.at if isinstance(rank.report, RankError) else rank.ended_at
    return rank.is_symptom, at or time.monotonic()


def _cause(rank: RankProcess) -> tuple[FailureKind, str]:
    if isinstance(rank.report, RankError):
        if rank.report.exit_code is not None:
            return "exit", f"exited with code {rank.report.exit_code}"
        return "needs_gpu" if rank.report.needs_gpu else "exception", rank.report.detail
    code = rank.exit_code
    if code is None:
        return "exit", "ended without a result, and the kernel has not removed its process yet"
    if code < 0:
        name = signal.Signals(-code).name
        hint = " (out of memory? see the kernel's log)" if name == "SIGKILL" else ""
        if name == "SIGABRT":
            hint = _uncaught(rank)
        return "signal", f"killed by {name}{hint}"
    return "exit", f"exited with code {code}" + ("" if code else " before it delivered a result")


def _uncaught(rank: RankProcess) -> str:
    """Return what C++ printed of an exception that nobody caught, as of a thread of gloo or NCCL.

    It is empty if there is none.
    """
    lines = (line.strip() for line in _output(rank).splitlines())
    said = [line.removeprefix(_WHAT).strip() for line in lines if line.startswith(_WHAT)]
    return f": {said[-1][:_LONGEST_WHAT]}" if said else ""


def how_it_ended(rank: RankProcess) -> str:
    """Return how a rank ended that delivered its times, and not its facts."""
    _, detail = _cause(rank)
    return f"it {detail}" if detail.startswith("e") else f"it was {detail}"


def _output(rank: RankProcess) -> str:
    """Return the last lines of what it printed, by the end of the file alone: it may be large."""
    with contextlib.suppress(OSError), rank.files.output.open("rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        stream.seek(max(size - _OUTPUT_BYTES, 0))
        lines = stream.read(_OUTPUT_BYTES).decode("utf-8", "replace").splitlines()
        return "\n".join(lines[-_OUTPUT_LINES:])
    return ""


def _responsive(ranks: Sequence[RankProcess], states: dict[int, str | None]) -> list[RankProcess]:
    """Return the ranks that run and are not stopped: only they can answer."""
    return [rank for rank in ranks if rank.running and states[rank.rank] != "T"]


def _stacks(ranks: Sequence[RankProcess], states: dict[int, str | None]) -> dict[str, str]:
    """Return the Python stacks of every running rank. A stopped process has no stacks to show."""
    asked = _responsive(ranks, states)
    for rank in asked:
        with contextlib.suppress(ProcessLookupError):
            os.kill(rank.pid, STACK_SIGNAL)
    end, before = time.monotonic() + _STACKS_S, [0] * len(asked)
    while time.monotonic() < end:  # a signal handler writes the dumps: no event to wait for
        time.sleep(0.01)
        sizes = [rank.files.stacks.stat().st_size for rank in asked]
        if all(sizes) and sizes == before:
            break
        before = sizes
    stacks = {
        f"rank {rank.rank}": rank.files.stacks.read_text(encoding="utf-8", errors="replace")
        for rank in asked
    }
    stopped = [rank for rank in ranks if rank.running and rank not in asked]
    return stacks | {
        f"rank {rank.rank}": f"no stack: the process is {describe_state(states[rank.rank])}"
        for rank in stopped
    }


# The agreement of ranks that trained together, over all nodes.


def check_agreement(request: LaunchRequest, results: Sequence[RankResult]) -> LaunchFailure | None:
    """Return a failure if ranks that trained together disagree, or None if they agree.

    They disagree if their parameters differ, or if they share a GPU without a request to do so.
    """
    # The verdict on the structure states that a rank has none.
    digested = [result for result in results if "digest" not in result.missing]
    digests = collections.Counter(result.digest for result in digested)
    devices = collections.Counter(_device(result.placement) for result in results)
    own_gpus = request.case.tier == "gpu" and not request.shared_gpu
    if len(digests) > 1:
        common, holders = digests.most_common(1)[0]
        # With two ranks it is unknown which one is wrong.
        differing = [one.placement.rank for one in digested if one.digest != common]
        culprit = differing[0] if holders > len(digested) / 2 else None
        detail = "parameters differ from the other ranks' after the last step"
        if request.case.script is not None:
            detail += "; let all ranks begin with the same ones, and average every gradient"
    elif own_gpus and len(devices) < len(results):
        places = [result.placement for result in results]
        culprit = next(place.rank for place in places if devices[_device(place)] > 1)
        detail = (
            "shares its GPU with another rank; give each rank its own GPU with CUDA_VISIBLE_DEVICES"
        )
    else:
        return None
    return LaunchFailure(
        case_id=request.case.id,
        round=request.round,
        kind="disagreement",
        rank=culprit,
        detail=detail,
    )


def _device(place: Placement) -> tuple[str | None, str]:
    return place.host, place.device_id
