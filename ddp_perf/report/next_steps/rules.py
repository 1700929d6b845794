"""A rule of a table, how a table decides, and the words and commands that tables share."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from ddp_perf.baselines.save import without_saving
from ddp_perf.render.model import NextStep

T = TypeVar("T")
Text = str | Callable[[T], str]  # a template has the fields of the subject, "{0.field}"
Rule = tuple[Callable[[T], object], Text[T], Text[T]]  # when it applies, why, and the command

SAVE = "--save-baseline"
ACCEPT = f'{SAVE}=accept --ddp-reason "…"'
IF_INTENDED = "if the change is intended, accept it"
COMMIT = "commit what is stored for every machine"
SEE_DISTURBANCE = "see what disturbs this machine"
DOCTOR = "ddp-perf doctor"


def first(rules: Sequence[Rule[T]], subjects: Sequence[T]) -> NextStep | None:
    """Return the step of the first rule that applies to any of the subjects; None: none does."""
    for when, *texts in rules:
        for subject in filter(when, subjects):
            why, command = (
                text.format(subject) if isinstance(text, str) else text(subject) for text in texts
            )
            return NextStep(why=why, command=command)
    return None


def again(command: str, *options: str) -> str:
    """Return a command with these options instead of what it was to store."""
    kept = shlex.join(without_saving(shlex.split(command)))
    return " ".join([kept, *filter(None, options)])


def bisect(good: str, bad: str, case_id: str, *options: str, kind: str = "") -> str:
    """Return the search between two sides; ``kind`` ends the names of their options."""
    sides = [f"--good{kind}", good, f"--bad{kind}", bad]
    return shlex.join(["ddp-perf", "bisect", *sides, "--case", case_id, *options])


def git_add(files: Iterable[str]) -> str:
    """Return the command that adds a file, or the directory that several have in common."""
    path = os.path.commonpath([os.path.abspath(file) for file in files])
    return shlex.join(["git", "add", os.path.relpath(path)])
