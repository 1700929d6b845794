"""Outsiders: who seeks a way into a launch, and secrets in each place where a session meets one."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.faults.matrix import Tried
from tests.faults.outsiders import (
    CANARY,
    NOTIFIED,
    REFUSED,
    command,
    found_in,
    make_project,
    session,
)
from tests.faults.reach import KINDS, play

_UMASKS = (0o000, 0o077)
_HISTORY = "sqlite:///history.sqlite"


def trials(*, trials: int, seed: int) -> Iterator[Tried]:
    """Play each once: no moment is random here."""
    del trials, seed
    with tempfile.TemporaryDirectory() as made:
        path = Path(made)
        make_project(path)
        for option, named in REFUSED.items():
            yield _refused(path, option, named)
        yield _measured(path)
    for kind, umask in itertools.product(KINDS, _UMASKS):
        with tempfile.TemporaryDirectory() as made:
            yield play(Path(made), kind, umask)


def _refused(path: Path, option: str, named: str) -> Tried:
    said = session(path, option)
    errors = [line for line in said.splitlines() if named in line]
    return Tried(
        fault="a secret in an option",
        where=option.partition("=")[0],
        seen=errors[0] if errors else "",
        kept="nothing was measured",
        survived=bool(errors),
        leaked=("the output",) if CANARY in said else (),
    )


def _measured(path: Path) -> Tried:
    said = session(path, f"--ddp-history={_HISTORY}", "--ddp-report=report", *NOTIFIED)
    said += command(path, "site", "--history", _HISTORY)
    said += command(path, "export", "csv", "--history", _HISTORY, "--out", "all.csv")
    output = ("the output",) if CANARY in said else ()
    return Tried(
        fault="a secret in a variable, a webhook or git's remote",
        where="in a session, its site and its export",
        seen="nothing",
        kept="all results, without the secret",
        survived=(path / "site" / "index.html").exists() and (path / "all.csv").exists(),
        leaked=(*output, *found_in(path)),
    )
