"""Counted cases with a verdict, and reports of them, for tests."""

from __future__ import annotations

from typing import Any

import msgspec

from ddp_perf.core.case import Case
from ddp_perf.core.verdict import Outcome
from ddp_perf.report.work_rows import WorkReport, work_report
from ddp_perf.work.values import CountedCase, Place, WorkChange, WorkVerdict
from tests.builders import make_case
from tests.works import SITE, make_operation, make_step_work

A100 = "a100-sxm4-80gb"


def make_change(**changes: Any) -> WorkChange:
    """Return two further clones of 67 MB at SITE, in the backward."""
    fields: dict[str, Any] = {
        "kind": "operation",
        "what": "aten.clone (float32)",
        "name": "aten.clone",
        "dtypes": ("float32",),
        "phase": "backward",
        "before": 1,
        "after": 3,
        "bytes": 134_217_728,
        "places": (Place(site=SITE, count=2),),
    }
    return WorkChange(**{**fields, **changes})


def make_counted(*changes: WorkChange, case: Case | None = None, **fields: Any) -> CountedCase:
    """Return a case of the GPU tier that does more clones; by default with that change."""
    outcome = fields.pop("outcome", Outcome.REGRESSION)
    verdict = WorkVerdict(
        outcome=outcome,
        reason=fields.pop("reason", "the step does more work"),
        changes=changes or (make_change(),),
        options=fields.pop("options", ()),
        lines=fields.pop("lines", ()),
    )
    size = 67_108_864
    stored, work = (
        make_step_work(
            operations=(make_operation(phase="backward", count=count, read=count * size),)
        )
        for count in (1, 3)
    )
    values: dict[str, Any] = {"work": work, "stored": stored, "verdict": verdict}
    return CountedCase(case=case or make_case(tier="gpu"), **{**values, **fields})


def make_same(case: Case | None = None) -> CountedCase:
    """Return a case whose counts are those that are stored."""
    one = make_counted(case=case)
    verdict = WorkVerdict(outcome=Outcome.PASS, reason="the counts are the same")
    return msgspec.structs.replace(one, stored=one.work, verdict=verdict)


def make_work_report(*counted: CountedCase) -> WorkReport:
    """Return the report of these cases, modelled on an A100."""
    return work_report(counted, {one.case.suite: (A100,) for one in counted})
