"""The next command after a session of work tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ddp_perf.core.verdict import Outcome
from ddp_perf.render.model import NextStep
from ddp_perf.report.next_steps import rules
from ddp_perf.work.values import CountedCase


def after_work(cases: Sequence[CountedCase], command: str) -> NextStep | None:
    """Return the one command that helps most after a session, or None if nothing is left to do.

    ``command`` is that of the session.
    """
    return rules.first(WORK, [Counted(cases, command)])


class Counted(NamedTuple):
    """The cases that a session counted, and its command."""

    cases: Sequence[CountedCase]
    command: str


def _has(*outcomes: Outcome) -> Callable[[Counted], bool]:
    """Return the condition that a case that was not stored has one of these verdicts."""
    return lambda about: any(
        case.verdict is not None and case.verdict.outcome in outcomes and case.saved is None
        for case in about.cases
    )


def _count(*options: str) -> Callable[[Counted], str]:
    return lambda about: rules.again(about.command, *options)


def _saved(about: Counted) -> list[str]:
    return [case.saved for case in about.cases if case.saved is not None]


_SAVE, _ACCEPT = _count(rules.SAVE), _count(rules.ACCEPT)

WORK: tuple[rules.Rule[Counted], ...] = (
    (
        lambda about: any(case.failure is not None for case in about.cases),
        "fix the cases that could not be counted",
        _count(),
    ),
    (_has(Outcome.REGRESSION, Outcome.UNDECIDED), rules.IF_INTENDED, _ACCEPT),
    (_has(Outcome.INCOMPARABLE), "on code that you trust, store the counts of this torch", _SAVE),
    (_has(Outcome.NO_BASELINE), "store what has no counts yet", _SAVE),
    (_has(Outcome.IMPROVEMENT), "let the smaller counts be the new bound", _ACCEPT),
    (_saved, rules.COMMIT, lambda about: rules.git_add(_saved(about))),
)
