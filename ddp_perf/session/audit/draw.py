"""The draw of an audit: which case is slowed, and by how much. Only its record shows the size."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable

import msgspec

from ddp_perf.core.case import Case
from ddp_perf.core.injection import Injection, parse_injection
from ddp_perf.core.metric import STEP_TIME
from ddp_perf.core.verdict import Outcome
from ddp_perf.session.result import SuiteResult

_SMALLEST, _LARGEST = 0.01, 0.10
_OF_NOTHING = 0.5  # of the audits: what is not slowed must not be called slower
_JUDGED = (Outcome.PASS, Outcome.UNDECIDED, Outcome.INVALID)
_SLOWER = (Outcome.REGRESSION, Outcome.SUSPECT)


class HiddenSlowDown(msgspec.Struct, frozen=True, kw_only=True):
    """The case that is launched again, and the share by which its step is slowed."""

    case: Case
    size: float  # 0: nothing
    seed: int

    @property
    def injections(self) -> tuple[Injection, ...]:
        return (parse_injection(f"compute:{100 * self.size:.1f}%"),) if self.size else ()


def draw_slow_down(results: Iterable[SuiteResult]) -> HiddenSlowDown | None:
    """Draw a case of the session and a size; None if no case can be audited.

    The same session draws the same again.
    """
    results = sorted(results, key=lambda result: result.suite)
    cases = [case for result in results for case in _auditable(result)]
    if not cases:
        return None
    where = results[0].environment
    seed = _seed(results[0].date, where.commit or "", where.host)
    source = random.Random(seed)
    case = source.choice(cases)
    is_nothing = source.random() < _OF_NOTHING
    size = 0.0 if is_nothing else round(source.uniform(_SMALLEST, _LARGEST), 3)
    return HiddenSlowDown(case=case, size=size, seed=seed)


def _seed(*texts: str) -> int:
    """Return a seed of 31 bits, which any database has room for."""
    digest = hashlib.sha256("\n".join(texts).encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


def _auditable(result: SuiteResult) -> list[Case]:
    """Return the cases that the session compares with stored ones, by id.

    A case that is slower or faster in the session itself is none: nobody could say whether its
    audit shows that or the hidden size.
    """
    measured = sorted(result.measurements.items())
    cases = [one.case for _, one in measured if one.is_complete and not one.nodes]
    return [case for case in cases if is_auditable(case) and _is_as_before(result, case)]


def is_auditable(case: Case) -> bool:
    """Return whether the ranks of the case can be slowed, on this machine."""
    return case.trains and case.launcher == "forkserver"


def _is_as_before(result: SuiteResult, case: Case) -> bool:
    step = result.finding(case.id, STEP_TIME.name)
    if step is None or step.verdict.outcome not in _JUDGED:
        return False
    if step.verdict.assumed_sd is not None:  # too few sessions show how much they differ
        return False
    own = [found for found in result.findings if found.case_id == case.id]
    return not any(found.verdict.outcome in _SLOWER for found in own)
