"""The process of one rank: ``torchrun --nproc_per_node=2 -m ddp_perf.bench``, or a single one."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from ddp_perf.bench.flags import Flags, Position, benchmark_case, parse_flags, position_of
from ddp_perf.core.launch import FACTS, LaunchFailure, LaunchRequest, Profiling
from ddp_perf.errors import ConfigError, DdpPerfError, ExitCode
from ddp_perf.system.host.permissions import deny_others

_REFUSED_S = 10.0  # within which the first rank of the node ends
_PROFILED_STEPS = 3  # as --ddp-profile
_NAME = "python -m ddp_perf.bench"


def main(arguments: Sequence[str]) -> int:
    """Measure on this rank, and return its exit code. What is wrong is one line, with the rank."""
    try:
        position = position_of(os.environ)
    except DdpPerfError as error:
        _note(f"rank {os.environ['RANK']}: {error}")
        return ExitCode.RED
    try:
        flags = _flags(arguments, position)
        request = _request(flags, position)
    except ConfigError as error:
        return _refuse(error, position)
    if position.alone and os.environ.get("SLURM_NTASKS", "1") != "1":
        _note("each task of Slurm measures by itself: let srun start torchrun instead")
    return _measure(request, flags, position)


def _flags(arguments: Sequence[str], position: Position) -> Flags:
    """Return the flags. Of the ranks of a node, the first one shows the help if they ask for it."""
    with contextlib.redirect_stdout(sys.stdout if position.local_rank == 0 else io.StringIO()):
        flags = parse_flags(arguments, _has_gpu)
    is_chosen = any(word.startswith(("--device", "--backend")) for word in arguments)
    if position.rank == 0 and flags.device == "cpu" and not is_chosen:
        _note("torch sees no GPU, so the ranks run on the CPU, over gloo")
    return flags


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def _request(flags: Flags, position: Position) -> LaunchRequest:
    """Return the request of the flags, after making the folder that they name."""
    profiling = None
    if flags.profile is not None:
        directory = Path(flags.profile).resolve()
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"--profile: {error}; choose another folder") from None
        profiling = Profiling(steps=_PROFILED_STEPS, directory=str(directory))
    case = benchmark_case(flags, position, os.environ)
    return LaunchRequest(case=case, round=0, profiling=profiling)


def _measure(request: LaunchRequest, flags: Flags, position: Position) -> int:
    from ddp_perf.bench.launch import meet, run_as_rank
    from ddp_perf.worker.process import rank_error

    deny_others()
    try:
        meeting = meet(flags, position)
        if meeting.position != position:
            request = _request(flags, meeting.position)
        outcome = run_as_rank(request, meeting)
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except Exception as error:  # noqa: BLE001 – torch raises anything; the process ends with it
        described = rank_error(error)
        if not described.peer_lost:
            sys.stderr.write(described.traceback)  # empty for a user's mistake
        _note(f"rank {position.rank}: {described.detail}")
        return ExitCode.RED
    if isinstance(outcome, LaunchFailure):
        _note(str(outcome))
        return ExitCode.RED
    if outcome is not None:
        from ddp_perf.bench.launch import report_text

        print(report_text(request, outcome))
        for fact in FACTS:
            if (why := outcome.why_missing(fact)) is not None:
                _note(f"no {fact}: {why}")
    return 0


def _refuse(error: ConfigError, position: Position) -> int:
    """Print the error, which is the same on each rank of a node, on the first one."""
    if position.local_rank == 0:
        _note(f"{error}\nSee {_NAME} --help")
    else:
        time.sleep(_REFUSED_S)  # torchrun ends all ranks when one ends, even before it prints
    return ExitCode.USAGE


def _note(message: str) -> None:
    print(f"{_NAME}: {message}", file=sys.stderr)


if __name__ == "__main__":
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    # torch may hang or abort when the interpreter shuts down after a process group was used.
    os._exit(code)
