"""Run proofs one after the other, each within its time limit, and keep their results."""

from __future__ import annotations

import contextlib
import datetime
import functools
import importlib.metadata
import os
import platform
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Literal
from xml.etree import ElementTree

import msgspec
from gpu_pace import Pace

from ddp_perf.core.gpu import Gpu
from ddp_perf.errors import DdpPerfError
from ddp_perf.system.files import replace_file
from ddp_perf.system.host.host import current_commit
from ddp_perf.system.host.termination import die_with_parent

PYTHON = sys.executable
PACE = "pace"  # the proof that the limits of the others follow
_MARGIN = 2.0  # of a measured launch: others have more steps, an injection, or a busy host
CALIBRATED_S = 4.0  # of steps: NVML's counter of energy needs 2.5 s
_GRACE_S = 20.0  # to end its ranks and keep what was measured, after its time is up
_UNREADABLE = (OSError, ValueError, KeyError, DdpPerfError, ElementTree.ParseError)


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """The result that the files of a proof show: whether it is proved, and its figure."""

    ok: bool
    figure: str


class Proof(msgspec.Struct, frozen=True, kw_only=True):
    """One command. ``{out}`` in it is the proof's own directory, ``{all}`` that of all proofs.

    ``{steps}`` is the number of steps of one GPU that take 4 s.
    """

    name: str
    shows: str
    gpus: int  # needed at least
    most_gpus: int | None = None  # shown to the command; None: all
    limit_s: float  # beside its launches
    launches: dict[int, int] = {}  # by the number of ranks; it has those that the machine can run
    spare_s: float = 0.0  # further seconds of a launch: its share of the budgets of its case
    command: tuple[str, ...]
    copies: tuple[str, ...] = ()  # directories of the repository that the command writes to
    fine: tuple[int, ...] = (0,)  # exit codes
    read: Callable[[Path], Reading]

    @property
    def needs(self) -> str:
        return "needs 1 GPU" if self.gpus == 1 else f"needs {self.gpus or 'no'} GPUs"

    def time_limit_s(self, pace: Pace | None, gpus: int) -> float:
        """Return the limit on a machine of so many GPUs, whose launches have this pace."""
        if not self.launches or pace is None:
            return self.limit_s
        most = min(gpus, self.most_gpus or gpus)
        launches = {ranks: count for ranks, count in self.launches.items() if ranks <= most}
        spare_s = self.spare_s * sum(launches.values())
        return self.limit_s + _MARGIN * pace.launches_s(launches) + spare_s


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a proof. It is kept, so that the others can be run another time."""

    state: Literal["passed", "failed", "timed out"]
    figure: str
    seconds: float
    commit: str | None
    date: str  # ISO 8601, UTC


class ProofRunner:
    """A runner of proofs on this machine. Each has a folder for its files in ``directory``."""

    def __init__(
        self, proofs: Sequence[Proof], *, gpus: Sequence[Gpu], root: Path, directory: Path
    ) -> None:
        self._proofs = proofs
        self._gpus = gpus
        self._root = root
        self._directory = directory
        self._commit = current_commit(root)

    def run(self, only: Collection[str]) -> int:
        """Run those proofs, print the table of all, and write the archive.

        Return 0 where all that this machine can run has passed, now or earlier at this commit, and
        at least one proof that takes a GPU is among it; else 1.
        """
        wanted = [
            proof
            for proof in self._proofs
            if self._can_run(proof) and (proof.name in only or self._is_missing_pace(proof))
        ]
        try:
            for number, proof in enumerate(wanted, 1):
                print(f"[{number}/{len(wanted)}] {proof.name}: {proof.shows}", flush=True)
                if proof.launches and self._pace() is None:
                    print(f"      not run: no launch was measured; see {PACE}")
                    continue
                print(f"      {self._limit_s(proof):.0f} s at most …", flush=True)
                outcome = self._run(proof)
                replace_file(self._folder(proof) / "outcome.json", msgspec.json.encode(outcome))
                print(f"      {outcome.state} in {outcome.seconds:.0f} s: {outcome.figure}")
        finally:
            self._conclude()
        return int(not self._holds())

    def _can_run(self, proof: Proof) -> bool:
        return proof.gpus <= len(self._gpus)

    def _is_missing_pace(self, proof: Proof) -> bool:
        return proof.name == PACE and self._outcome(proof) is None

    def _pace(self) -> Pace | None:
        """Return the pace of this machine, or None if not one launch of it has succeeded."""
        file = self._directory / PACE / "pace.json"
        return msgspec.json.decode(file.read_bytes(), type=Pace) if file.exists() else None

    def _limit_s(self, proof: Proof) -> float:
        return proof.time_limit_s(self._pace(), len(self._gpus))

    def _folder(self, proof: Proof) -> Path:
        return self._directory / proof.name

    def _run(self, proof: Proof) -> Outcome:
        out = self._folder(proof)
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)
        for name in proof.copies:
            shutil.copytree(self._root / name, out / name)
        begin = time.monotonic()
        code = self._exit_code(proof, out)
        state, figure = _judge(proof, out, code, limit_s=self._limit_s(proof))
        return Outcome(
            state=state,
            figure=figure,
            seconds=time.monotonic() - begin,
            commit=self._commit,
            date=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        )

    def _exit_code(self, proof: Proof, out: Path) -> int | None:
        """Return the exit code, or None if its time was up. No process of it is left behind."""
        pace = self._pace()
        places = {"{out}": str(out), "{all}": str(self._directory)}
        if pace is not None:
            places["{steps}"] = str(pace.steps_of(CALIBRATED_S))
        command = [_filled(word, places) for word in proof.command]
        env = dict(os.environ)
        if proof.most_gpus is not None:
            env["CUDA_VISIBLE_DEVICES"] = ",".join(g.uuid for g in self._gpus[: proof.most_gpus])
        with (out / "output.txt").open("wb") as output, (out / "errors.txt").open("wb") as errors:
            process = subprocess.Popen(
                command,
                cwd=self._root,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                start_new_session=True,
                # However this process ends, and whenever.
                preexec_fn=functools.partial(die_with_parent, os.getpid()),
            )
        try:
            return process.wait(self._limit_s(proof))
        except subprocess.TimeoutExpired:
            return None
        finally:
            _end(process)

    def _conclude(self) -> None:
        """Print the table, and write it and the versions into the archive."""
        lines = [self._line(proof) for proof in self._proofs]
        table = "\n".join([f"{'proof':12} {'outcome':13} {'time':>6}  figure", *lines])
        self._directory.mkdir(parents=True, exist_ok=True)
        replace_file(self._directory / "table.txt", f"{table}\n".encode())
        versions = msgspec.json.format(msgspec.json.encode(self._versions()), indent=1)
        replace_file(self._directory / "versions.json", versions)
        archive = self._directory.with_suffix(".tar.gz")
        with tarfile.open(archive, "w:gz") as tar:
            tar.add(self._directory, arcname=self._directory.name)
        print(f"\n{table}\n\n{archive}")

    def _line(self, proof: Proof) -> str:
        outcome = self._outcome(proof)
        if not self._can_run(proof):
            return f"{proof.name:12} {proof.needs:13} {'':6}  {proof.shows}"
        if outcome is None:
            return f"{proof.name:12} {'not run':13} {'':6}  ci/gpu-proof --only {proof.name}"
        time_s = f"{outcome.seconds:4.0f} s"
        return f"{proof.name:12} {outcome.state:13} {time_s}  {outcome.figure}"

    def _outcome(self, proof: Proof) -> Outcome | None:
        """Return the newest outcome, if it is of this commit."""
        try:
            raw = (self._folder(proof) / "outcome.json").read_bytes()
        except OSError:
            return None
        outcome = msgspec.json.decode(raw, type=Outcome)
        return outcome if outcome.commit == self._commit else None

    def _holds(self) -> bool:
        runnable = [proof for proof in self._proofs if self._can_run(proof)]
        outcomes = [self._outcome(proof) for proof in runnable]
        passed = all(outcome is not None and outcome.state == "passed" for outcome in outcomes)
        return passed and any(proof.gpus > 0 for proof in runnable)

    def _versions(self) -> dict[str, object]:
        packages = {d.name: d.version for d in importlib.metadata.distributions()}
        return {
            "commit": self._commit,
            "python": platform.python_version(),
            "system": platform.platform(),
            "gpus": self._gpus,
            "packages": dict(sorted(packages.items())),
        }


def _judge(
    proof: Proof, out: Path, code: int | None, *, limit_s: float
) -> tuple[Literal["passed", "failed", "timed out"], str]:
    """Return the state and the figure that follow from a command's end and its files."""
    try:
        reading = proof.read(out)
    except _UNREADABLE as error:
        reading = Reading(ok=False, figure=f"no result ({error}); see {out}/errors.txt")
    if code is None:
        return "timed out", f"not done after {limit_s:.0f} s; {reading.figure}"
    if code not in proof.fine:
        return "failed", f"exit code {code}; {reading.figure}"
    return "passed" if reading.ok else "failed", reading.figure


def _filled(word: str, places: dict[str, str]) -> str:
    for place, path in places.items():
        word = word.replace(place, path)
    return word


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the command if it still runs: by SIGTERM, then by SIGKILL. Its ranks die with it."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None:
            os.killpg(process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_GRACE_S)
