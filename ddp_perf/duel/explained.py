"""The causes of a slower case: by the structure of its steps, and by their terms."""

from __future__ import annotations

from ddp_perf.core.baseline import CaseBaseline
from ddp_perf.core.environment import Environment
from ddp_perf.core.explanation import Explanation
from ddp_perf.core.launch import LaunchResult, first_structure, why_missing
from ddp_perf.core.measurement import Measurement
from ddp_perf.duel.values import CaseDuel, SideName
from ddp_perf.session.gate.exact import structure_changes
from ddp_perf.session.gate.explanation import explain_case
from ddp_perf.stats.summary import as_session, summarise_all


def structure_difference(case: CaseDuel) -> str | None:
    """Return how the structures of the measured steps differ, or why one is missing, or None."""
    if not case.pairs:
        return None
    a, b = first_structure(_launches(case, "A")), first_structure(_launches(case, "B"))
    if a is None or b is None:
        side: SideName = "A" if a is None else "B"
        why = why_missing(_launches(case, side), "structure")
        return None if why is None else f"side {side} has none {why}"
    return "; ".join(structure_changes(a, b)) or None


def explain_slower(case: CaseDuel, a: Environment, b: Environment) -> Explanation | None:
    """Explain a slower case: side A's launches take the place of a stored session.

    Return None if the launches have no terms.
    """
    if len(case.pairs) < 2 or not case.cases.b.trains:
        return None
    before = _launches(case, "A")
    summaries = summarise_all(before, samples_per_step=case.cases.a.samples_per_step, singles=())
    stored = CaseBaseline(
        work=case.cases.a.work(),
        structure=first_structure(before),
        sessions=(as_session(summaries, a, before[0].started),),
        first={},
    )
    now = Measurement(case=case.cases.b, launches=tuple(_launches(case, "B")), failures=())
    return explain_case(now, stored, b, in_alternation=True)


def _launches(case: CaseDuel, side: SideName) -> list[LaunchResult]:
    return [pair.a if side == "A" else pair.b for pair in case.pairs]
