"""The lines below the table of a suite's counts."""

from __future__ import annotations

import pytest

from ddp_perf.core.subject import ScriptRun
from ddp_perf.core.verdict import Outcome
from ddp_perf.plugin.terminal import suite_lines
from ddp_perf.work.values import CountedCase, WorkVerdict
from tests.builders import make_case
from tests.works import make_step_work


@pytest.mark.parametrize(
    ("script", "noted"),
    [(None, True), (ScriptRun(script="train.py", args=(), samples=4), False)],
    ids=["workload", "script"],
)
def test_only_a_workload_may_do_without_its_values(script, noted):
    verdict = WorkVerdict(outcome=Outcome.PASS, reason="as stored")
    case = make_case(id="train-ws2", script=script)
    counted = CountedCase(case=case, work=make_step_work(computed=True), verdict=verdict)

    lines = suite_lines([counted], width=100)

    assert ("counted with values computed" in " ".join(lines)) is noted
