"""Two thousand launches of one launcher, every tenth of which fails: does anything grow?

The driver (this process) and its server are read after each fiftieth launch. The first quarter
fills caches, so the second one is compared with the last one: descriptors, threads, processes and
temporary files may not grow at all, and memory by less than a megabyte.
"""

from __future__ import annotations

import contextlib
import gc
import os
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import psutil

from ddp_perf.core.launch import LaunchRequest, LaunchResult
from ddp_perf.launch.server_launcher import ServerLauncher
from tests.builders import make_request
from tests.faults.matrix import Tried

LAUNCHES, EACH = 2000, 50
WORKLOADS = Path(__file__).parents[2] / "tests/system/workloads"
FAULTS = ("raise", "os-exit", "kill")  # without a deadline: the others are parts of their own
MEMORY = 2**20  # bytes; of the driver and its server
SIZES = {"input_dim": 16, "hidden_dim": 16, "output_dim": 4, "num_layers": 2}


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """What the driver and its server have, once no launch runs."""

    driver_memory: int  # bytes, resident
    server_memory: int
    descriptors: int
    threads: int
    processes: int
    files: int  # temporary ones

    def __str__(self) -> str:
        return (
            f"driver {self.driver_memory / 2**20:.1f} MiB, server {self.server_memory / 2**20:.1f}"
            f" MiB, {self.descriptors} descriptors, {self.threads} threads, {self.processes}"
            f" processes, {self.files} temporary files"
        )


def trials(*, trials: int, seed: int) -> Iterator[Tried]:
    """Yield a trial of each launch, once all have run."""
    with _temporary_directory() as directory, contextlib.closing(ServerLauncher()) as launcher:
        readings, ended = [], 0
        for number in range(1, LAUNCHES + 1):
            ended += _ends_as_asked(launcher, number, directory)
            if number % EACH == 0:
                readings.append(_read(directory))
                print(f"  {number}: {readings[-1]}", flush=True)
    before, after = (_typical(part) for part in (_quarter(readings, 1), _quarter(readings, 3)))
    leaked = tuple(_grown(before, after))
    for number in range(LAUNCHES):
        yield Tried(
            fault="many launches in one process",
            where="2 ranks, every tenth launch fails",
            seen=f"from launch {LAUNCHES // 4} on: {before}; at the end: {after}",
            kept="every result",
            survived=number < ended,
            leaked=leaked if number == 0 else (),
        )


@contextlib.contextmanager
def _temporary_directory() -> Iterator[Path]:
    """Yield the place of all temporary files of the block."""
    with tempfile.TemporaryDirectory() as directory:
        tempfile.tempdir, before = directory, tempfile.tempdir
        os.environ["TMPDIR"] = directory
        try:
            yield Path(directory)
        finally:
            tempfile.tempdir = before
            del os.environ["TMPDIR"]


def _ends_as_asked(launcher: ServerLauncher, number: int, directory: Path) -> bool:
    failing = number % 10 == 0
    fault = FAULTS[number // 10 % len(FAULTS)]
    request = _request(fault, at_step=4) if failing else _request("nothing", at_step=4)
    output = directory / "output" / str(number)
    outcome = launcher.launch(msgspec.structs.replace(request, output=str(output)))
    for file in output.glob("*"):  # the caller's, which a session keeps
        file.unlink()
    with contextlib.suppress(FileNotFoundError):
        output.rmdir()
    return isinstance(outcome, LaunchResult) != failing


def _request(fault: str, at_step: int) -> LaunchRequest:
    model = {"fault": fault, "at_step": at_step}
    return make_request("faulty:build", WORKLOADS, model=model, steps=4, warmup=1)


def _read(directory: Path) -> Reading:
    gc.collect()
    driver = psutil.Process()
    below = driver.children(recursive=True)
    (server,) = driver.children()
    everyone = [driver, *below]
    return Reading(
        driver_memory=driver.memory_info().rss,
        server_memory=server.memory_info().rss,
        descriptors=sum(each.num_fds() for each in everyone),
        threads=sum(each.num_threads() for each in everyone),
        processes=len(everyone),
        files=sum(1 for _ in directory.rglob("*")),
    )


def _quarter(readings: Sequence[Reading], number: int) -> Sequence[Reading]:
    count = len(readings) // 4
    return readings[number * count : (number + 1) * count]


def _typical(readings: Sequence[Reading]) -> Reading:
    """Return the median of each figure."""
    figures = {
        name: statistics.median_low([getattr(one, name) for one in readings])
        for name in Reading.__struct_fields__
    }
    return Reading(**figures)


def _grown(before: Reading, after: Reading) -> Iterator[str]:
    for name in Reading.__struct_fields__:
        least = MEMORY if name.endswith("memory") else 1
        grown = getattr(after, name) - getattr(before, name)
        if grown >= least:
            yield f"{name}: {grown} more"
