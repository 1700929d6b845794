"""Every kind of file while its disk fills, its directory is read-only, or sixteen write at once."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from ddp_perf.errors import DdpPerfError
from tests.faults.matrix import Tried
from tests.faults.postgresql import ENDS, play_end
from tests.faults.saves import OBSTACLES, OUTPUTS, try_full, try_obstacle, try_place
from tests.faults.sessions import Project
from tests.faults.storage import (
    DAMAGES,
    WRITERS,
    Writer,
    failing,
    full_after,
    play,
    play_damage,
    play_link,
    play_second_user,
)
from tests.projects import REPOSITORY

STEP = 997  # bytes: a disk is full after each multiple
LARGEST = 25_000
SAVERS = (2, 16)


def trials(*, trials: int, seed: int) -> Iterator[Tried]:
    """Yield the whole matrix. Nothing in it is random; a disk of its own needs root."""
    for writer in WRITERS:
        for size in range(0, LARGEST, STEP):
            with tempfile.TemporaryDirectory() as directory:
                place = "at any byte of a file"
                yield play(writer, Path(directory), "the disk is full", place, full_after(size))
        for name in ("fsync", "replace", "write"):
            with tempfile.TemporaryDirectory() as directory:
                fault = "a write, a flush or a rename fails"
                yield play(writer, Path(directory), fault, name, failing(name))
        yield _on_a_full_disk(writer)
        yield _read_only(writer)
        for savers in SAVERS:
            yield _at_once(writer, savers)
        with tempfile.TemporaryDirectory() as directory:
            Path(directory).chmod(0o755)
            shared = Path(directory) / "shared"
            shared.mkdir()
            yield play_second_user(writer, shared)
    for fault in DAMAGES:
        with tempfile.TemporaryDirectory() as directory:
            yield play_damage(fault, Path(directory))
    with tempfile.TemporaryDirectory() as directory:
        yield play_link(Path(directory))
    with _postgresql():
        for fault in ENDS:
            with tempfile.TemporaryDirectory() as directory:
                yield play_end(fault, Path(directory))
    with tempfile.TemporaryDirectory() as directory:
        project = Project(Path(directory) / "project")
        yield from _sessions(project)


def _sessions(project: Project) -> Iterator[Tried]:
    """Yield the outputs of whole sessions that cannot be written, before or after measuring."""
    with _disk("1M") as disk, _remounted(disk):
        obstacles = {
            "the directory of an output is read-only": lambda place: place.symlink_to(disk)
        }
        for output in OUTPUTS:
            for fault, put in {**OBSTACLES, **obstacles}.items():
                yield try_obstacle(project, output, fault, put)
    for output in OUTPUTS:
        yield try_place(project, output)
    yield try_full(project)


@contextlib.contextmanager
def _postgresql() -> Iterator[None]:
    """Start the server of the tests, which stops when its input ends."""
    script = "set -euo pipefail; source ci/postgresql.sh; echo $DDP_TEST_POSTGRESQL; cat"
    with subprocess.Popen(
        ["bash", "-c", script], cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as server:
        assert server.stdout is not None
        url = server.stdout.readline().decode().strip()
        with mock.patch.dict(os.environ, DDP_TEST_POSTGRESQL=url):
            yield
        server.communicate()


@contextlib.contextmanager
def _disk(size: str) -> Iterator[Path]:
    """Yield a file system of its own, in memory."""
    with tempfile.TemporaryDirectory() as directory:
        mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", directory]
        subprocess.run(mount, check=True)
        try:
            yield Path(directory)
        finally:
            subprocess.run(["umount", directory], check=True)


def _on_a_full_disk(writer: Writer) -> Tried:
    with _disk("1M") as disk:
        return play(writer, disk, "the disk has no byte left", "a small disk", _filled(disk))


@contextlib.contextmanager
def _filled(disk: Path) -> Iterator[None]:
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        for _ in itertools.count():
            file.write(bytes(4096))
    try:
        yield
    finally:
        filler.unlink()


def _read_only(writer: Writer) -> Tried:
    with _disk("1M") as disk:
        return play(writer, disk, "the disk is read-only", "a small disk", _remounted(disk))


@contextlib.contextmanager
def _remounted(disk: Path) -> Iterator[None]:
    _remount(disk, "ro")
    try:
        yield
    finally:
        _remount(disk, "rw")


def _remount(disk: Path, mode: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{mode}", str(disk)], check=True)


def _at_once(writer: Writer, savers: int) -> Tried:
    """Let several processes store a thing each at the same moment."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        together, told = context.Barrier(savers), context.SimpleQueue()
        processes = [
            context.Process(target=_save, args=(writer.name, directory, number, together, told))
            for number in range(1, savers + 1)
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        answers = [told.get() for _ in processes]
        stored = {answer for answer in answers if isinstance(answer, int)}
        refused = [answer for answer in answers if isinstance(answer, str)]
        read = writer.read(directory)
    return Tried(
        fault="several processes store at once",
        where=f"{writer.name}, {savers} processes",
        seen=refused[0].replace(name, "DIRECTORY") if refused else "each is stored",
        kept="what every process stored; a log takes one run at a time",
        survived=bool(stored) and all(name in error for error in refused),
        lost=len(stored - read),
    )


def _save(name: str, directory: Path, number: int, together: Any, told: Any) -> None:
    writer = next(one for one in WRITERS if one.name == name)
    together.wait()
    try:
        writer.write(directory, number)
    except DdpPerfError as error:
        told.put(str(error))
    else:
        told.put(number)
