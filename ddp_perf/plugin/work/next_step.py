"""The next command at the end of a session of work tests."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping, Sequence

from ddp_perf.baselines.save import without_saving
from ddp_perf.core.verdict import Outcome
from ddp_perf.render.units import counted as number_of
from ddp_perf.report.next_step import NextStep
from ddp_perf.work.values import CountedCase

_SAVE = "--save-baseline"
_ACCEPT = '--save-baseline=accept --ddp-reason "…"'
_AFTER: Mapping[Outcome, tuple[str, str]] = {  # the most urgent one comes first
    Outcome.REGRESSION: ("if the change is intended, store the new counts", _ACCEPT),
    Outcome.UNDECIDED: ("if the work is meant to be there, store the new counts", _ACCEPT),
    Outcome.INCOMPARABLE: ("on code that you trust, store the counts of this torch", _SAVE),
    Outcome.NO_BASELINE: ("store what has no counts yet", _SAVE),
    Outcome.IMPROVEMENT: ("let the smaller counts be the new bound", _ACCEPT),
}


def work_step(cases: Iterable[CountedCase], command: str) -> NextStep | None:
    """Return the one command that helps most after a session, or None if nothing is left to do.

    ``command`` is that of the session.
    """
    cases = list(cases)
    again = shlex.join(without_saving(shlex.split(command)))
    failed = [case for case in cases if case.failure is not None]
    if failed:
        why = f"mend {number_of(len(failed), 'case')} that could not be counted"
        return NextStep(why=why, command=again)
    open_ones = {case.verdict.outcome for case in cases if case.verdict and case.saved is None}
    for outcome, (why, option) in _AFTER.items():
        if outcome in open_ones:
            return NextStep(why=why, command=f"{again} {option}")
    files = sorted({case.saved for case in cases if case.saved is not None})
    if not files:
        return None
    stored = number_of(sum(case.saved is not None for case in cases), "case")
    why = f"the counts of {stored} are stored for every machine; commit them"
    return NextStep(why=why, command=shlex.join(["git", "add", _path(files)]))


def _path(files: Sequence[str]) -> str:
    """Return the path of a file, or of the directory of several, from here."""
    path = files[0] if len(files) == 1 else os.path.commonpath(map(os.path.abspath, files))
    return os.path.relpath(path)


def is_red(case: CountedCase) -> bool:
    """Return whether the case could not be counted, or does other work that is not accepted."""
    if case.verdict is None:
        return True
    return case.verdict.outcome is Outcome.REGRESSION and case.saved is None
