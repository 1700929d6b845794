"""Outputs of a pytest session that cannot be written any more when it has measured.

What was measured must be in another file, and what the message names must bring it where it
belongs: a command, or the same one, which goes on from the launches.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import msgspec

from ddp_perf.baselines.store import read_baseline
from ddp_perf.core.launch import LaunchRequest
from ddp_perf.history.store import HistoryStore
from ddp_perf.session.result import read_results
from tests.faults.matrix import Tried
from tests.faults.sessions import Project

_APPEND = "--save-baseline=append"
_AWAY = "the place of an output is gone when the session has measured"
_FULL = "nothing can be written when the session has measured"
_COMMAND = re.compile(r"ddp-perf (?:history import|report) .*?(?= appends|$)")
_HISTORY = "sqlite:///place/history.sqlite"


class Output(msgspec.Struct, frozen=True, kw_only=True):
    """An output of a session, in ``place``; ``count`` returns how many sessions are in it."""

    name: str
    place: str = "place"
    options: tuple[str, ...] = ()
    count: Callable[[Path], int]


def _sessions(directory: Path) -> int:
    files = (directory / "baselines").glob("*.json")
    cases = [case for path in files for case in read_baseline(path).cases.values()]
    return min(len(case.sessions) for case in cases)


def _recorded(directory: Path) -> int:
    url = f"sqlite:///{directory / 'place/history.sqlite'}"
    with contextlib.closing(HistoryStore(url)) as store:
        return len(store.records())


def _kept(directory: Path) -> int:
    files = [*(directory / "artifacts").glob("*.json"), *(directory / "place").glob("*.json")]
    return sum(read_results(path).complete for path in files)


def _pages(directory: Path) -> int:
    return len(list(directory.rglob("index.html")))


OUTPUTS = (
    Output(name="--save-baseline", place="baselines", count=_sessions),
    Output(name="--ddp-history", options=(f"--ddp-history={_HISTORY}",), count=_recorded),
    Output(name="--ddp-json", options=("--ddp-json=place/results.json",), count=_kept),
    Output(name="--ddp-report", options=("--ddp-report=place",), count=_pages),
)


def take_away(name: str, directory: Path, request: LaunchRequest) -> None:
    """Put a file in the place of a directory, once the last round begins."""
    place = directory / name
    if request.round == 1 and place.is_dir():
        place.rename(directory / f"{name}.away")
        place.touch()


def fill_disk(directory: Path, request: LaunchRequest) -> None:
    """Let no file be flushed any more, once the last round begins."""

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if request.round == 1:
        mock.patch.object(os, "fsync", fail).start()  # the process ends with the session


def try_place(project: Project, output: Output) -> Tried:
    """Take the place of an output away, give it back, and do what the message says."""
    with project.copied() as directory:
        before = output.count(directory)
        trouble = functools.partial(take_away, output.place)
        code = project.start(directory, _APPEND, *output.options, trouble=trouble).wait()
        (directory / output.place).unlink()
        (directory / f"{output.place}.away").rename(directory / output.place)
        told = _told(directory, output.name)
        command = _COMMAND.search(told)
        if command is not None:
            _run(command.group(), directory)
        elif "the same command goes on" in told:
            again = project.start(directory, _APPEND, *output.options)
            assert (again.wait(), again.launches) == (0, 0), again.output
        after = output.count(directory)
        seen = told.replace(str(directory), "DIRECTORY")
    return Tried(
        fault=_AWAY,
        where=output.name,
        seen=seen,
        kept="the session, in the file that the message names",
        survived=code == 1 and output.place in told and "; the measurements " in told,
        lost=before + 1 - after,
    )


def _put_file(place: Path) -> None:
    place.touch()


def _put_link_to_nothing(place: Path) -> None:
    place.symlink_to("nowhere")


OBSTACLES: dict[str, Callable[[Path], None]] = {
    "the directory of an output is a file": _put_file,
    "the directory of an output is a link that leads nowhere": _put_link_to_nothing,
}


def try_obstacle(
    project: Project, output: Output, fault: str, put: Callable[[Path], None]
) -> Tried:
    """Put something in the place of an output's directory, and start a session."""
    with project.copied() as directory:
        place = directory / output.place
        shutil.rmtree(place)
        put(place)
        session = project.start(directory, _APPEND, *output.options)
        code, told, launches = session.wait(), session.output, session.launches
        errors = [line for line in told.splitlines() if line.startswith("ERROR: ")]
        seen = errors[0].removeprefix("ERROR: ") if errors else "nothing"
    return Tried(
        fault=fault,
        where=output.name,
        seen=seen.replace(str(directory), "DIRECTORY"),
        kept="no launch began",
        survived=code == 4 and output.place in seen and launches == 0,
    )


def try_full(project: Project) -> Tried:
    """Let the disk be full at the end of a session, and run the same session again."""
    with project.copied() as directory:
        before = _sessions(directory)
        code = project.start(directory, _APPEND, trouble=fill_disk).wait()
        told = _told(directory, "--save-baseline")
        again = project.start(directory, _APPEND)
        went_on = again.wait() == 0 and "goes on after " in again.output
        after = _sessions(directory)
        left = tuple(path.name for path in (directory / "artifacts").rglob("*.json*"))
        seen = told.replace(str(directory), "DIRECTORY")
    return Tried(
        fault=_FULL,
        where="--save-baseline",
        seen=seen,
        kept="the finished launches: the same command goes on from them",
        survived=code == 1 and went_on,
        lost=before + 1 - after,
        leaked=left,
    )


def _told(directory: Path, output: str) -> str:
    """Return the line about the output; that of baselines is of each test."""
    lines = (directory / "output").read_text(encoding="utf-8").splitlines()
    about = [line for line in lines if line.startswith(f"{output}: ")]
    return (about or [line for line in lines if " cannot be " in line] or [""])[0]


def _run(command: str, directory: Path) -> None:
    """Run a command of ddp-perf."""
    _, *arguments = shlex.split(command)
    program = [sys.executable, "-c", "from ddp_perf.cli.app import app; app()", *arguments]
    subprocess.run(program, cwd=directory, check=True, capture_output=True)
