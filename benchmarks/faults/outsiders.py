"""Outsiders: who seeks a way into a launch, secrets where a session meets one, hostile names."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.faults.matrix import Tried
from tests.faults.names import MEDIA, NAMES
from tests.faults.outsiders import (
    CANARY,
    DUEL,
    MEASURED,
    REFUSED,
    Refused,
    command,
    found_in,
    make_project,
    session,
)
from tests.faults.reach import KINDS, play

_UMASKS = (0o000, 0o077)
_SUITES = ("--ddp-config=bench_configs/tiny.yaml", "--ddp-config=script.yaml")
_FORMATS = ("csv", "bencher", "github-action-benchmark", "otlp", "prometheus")
_HISTORY = "sqlite:///history.sqlite"


def trials(*, trials: int, seed: int) -> Iterator[Tried]:
    """Play each once: no moment is random here."""
    del trials, seed
    with tempfile.TemporaryDirectory() as made:
        path = Path(made)
        make_project(path)
        for refused in REFUSED:
            yield _refused(path, refused)
        yield _measured(path)
        yield _duelled(path)
    yield from itertools.starmap(_named, itertools.product(NAMES, MEDIA))
    for kind, umask in itertools.product(KINDS, _UMASKS):
        with tempfile.TemporaryDirectory() as made:
            yield play(Path(made), kind, umask)


def _named(kind: str, medium: str) -> Tried:
    wrong = tuple(MEDIA[medium](NAMES[kind]))
    return Tried(
        fault="a name that is markup, a formula or a command",
        where=medium,
        seen="the name",
        kept="all else that is shown",
        survived=not wrong,
        leaked=wrong,
    )


def _refused(path: Path, refused: Refused) -> Tried:
    run = session if refused.program == "pytest" else command
    said = run(path, *refused.arguments)
    errors = [line for line in said.splitlines() if refused.said in line]
    return Tried(
        fault="a secret where none may be",
        where=refused.where,
        seen=errors[0] if errors else said,
        kept="nothing was measured",
        survived=bool(errors),
        leaked=_leaked(path, said),
    )


def _measured(path: Path) -> Tried:
    said = session(path, *MEASURED, *_SUITES, f"--ddp-history={_HISTORY}")
    said += command(path, "site", "--history", _HISTORY)
    for form in _FORMATS:
        said += command(path, "export", form, "--history", _HISTORY, "--out", f"all.{form}")
    wrote = [path / "site/index.html", *(path / f"all.{form}" for form in _FORMATS)]
    return _found(path, said, "a session, its site, its exports", wrote)


def _duelled(path: Path) -> Tried:
    said = command(path, *DUEL, "--case=mlp-none-fp32-ws1-b16", "--report=duel")
    return _found(path, said, "a duel", [path / "duel/duel.html", path / "duel/duel.md"])


def _found(path: Path, said: str, where: str, wrote: Iterable[Path]) -> Tried:
    return Tried(
        fault="a secret in a variable, a webhook or git's remote",
        where=where,
        seen="nothing",
        kept="all results, without the secret",
        survived=all(one.exists() for one in wrote),
        leaked=_leaked(path, said),
    )


def _leaked(path: Path, said: str) -> tuple[str, ...]:
    return (*(("the output",) if CANARY in said else ()), *found_in(path))
