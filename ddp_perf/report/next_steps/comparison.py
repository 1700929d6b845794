"""The next command after a comparison of results files."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Set
from pathlib import PurePath

from ddp_perf.core.measurement import Finding
from ddp_perf.core.metric import EXACT
from ddp_perf.core.verdict import Outcome
from ddp_perf.render.model import NextStep
from ddp_perf.report.next_steps.rules import DOCTOR, SEE_DISTURBANCE, Rule, first
from ddp_perf.report.next_steps.session import measure_again
from ddp_perf.session.compare_sessions import ComparedSide, SessionComparison
from ddp_perf.session.result import Conclusion

# Sessions of a side that are worth measuring. Where sessions differ by 3 %, three find no more than
# two, because their spread is measured from then on (benchmarks/two_sides.py).
_SECOND, _ENOUGH = 2, 5
_COMPARED = (Outcome.PASS, Outcome.IMPROVEMENT, Outcome.UNDECIDED)


def after_comparison(comparison: SessionComparison) -> NextStep | None:
    """Return what may decide an undecided comparison, or None if no session does."""
    is_open = comparison.conclusion is Conclusion.UNDECIDED and bool(comparison.findings)
    if not is_open or comparison.gaps or comparison.same_session:
        return None
    return first(COMPARISON, [comparison])


def _figures(comparison: SessionComparison) -> list[Finding]:
    return [finding for finding in comparison.findings if finding.metric not in EXACT]


def _is_undecided(comparison: SessionComparison) -> bool:
    undecided = (Outcome.UNDECIDED, Outcome.SUSPECT)
    return any(finding.verdict.outcome in undecided for finding in _figures(comparison))


def _is_compared(comparison: SessionComparison) -> bool:
    return all(finding.verdict.outcome in _COMPARED for finding in comparison.findings)


def _fewest(comparison: SessionComparison) -> int:
    return min(len(side.sessions) for side in (comparison.old, comparison.new))


def _wanted(comparison: SessionComparison) -> int:
    return _SECOND if _fewest(comparison) < _SECOND else _ENOUGH


def _compare_all(comparison: SessionComparison) -> str:
    """Return the command that compares these files, and as many further ones as are wanted."""
    wanted = _wanted(comparison)
    both = (*comparison.old.sessions, *comparison.new.sessions)
    compared = {session.name for session in both}
    old = _files(comparison.old, wanted, taken=compared)
    new = _files(comparison.new, wanted, taken=compared.union(old))
    return f"ddp-perf compare {shlex.join(old)} vs {shlex.join(new)}"


def _files(side: ComparedSide, wanted: int, *, taken: Set[str]) -> list[str]:
    """Return the files of a side, and names for those that it lacks."""
    names = [session.name for session in side.sessions]
    path = PurePath(names[0])
    numbered = (
        str(path.with_name(f"{path.stem}-{number}{path.suffix}")) for number in itertools.count(2)
    )
    free = (name for name in numbered if name not in taken)
    return [*names, *itertools.islice(free, max(0, wanted - len(names)))]


def _measure_again(comparison: SessionComparison) -> str:
    return measure_again(comparison.judged[0])


COMPARISON: tuple[Rule[SessionComparison], ...] = (
    (
        lambda one: _is_undecided(one) and _fewest(one) >= _ENOUGH,
        "sessions differ too much: use a quieter machine, or raise the tolerance",
        DOCTOR,
    ),
    (
        _is_undecided,
        lambda one: (
            f"measure {_wanted(one)} sessions of each side in all, in turn"
            " (pytest --ddp-json=FILE), and compare all files"
        ),
        _compare_all,
    ),
    (
        lambda one: any(finding.excuse for finding in _figures(one)),
        f"{SEE_DISTURBANCE}, and measure the sessions again",
        DOCTOR,
    ),
    (
        _is_compared,
        "decide whether the change of the structure is meant: no session decides it",
        "pytest -m work",
    ),
    (lambda one: True, "measure again what could not be compared, as stated above", _measure_again),
)
