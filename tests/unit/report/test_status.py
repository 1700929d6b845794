"""The status of a verdict whose session was to be stored, and was not: see test_rows.py."""

from __future__ import annotations

import pytest

from ddp_perf.baselines.save import Refused, Saved
from ddp_perf.core.verdict import Outcome
from ddp_perf.render.model import Status
from ddp_perf.report.status import status_of
from tests.builders import make_case, make_finding, make_measurement, make_result

CASE = make_case()
LEFT_OUT = Saved(path="p", mode="append", without={"step_time": "busy"})


@pytest.mark.parametrize(
    ("outcome", "mode", "cause", "status"),
    [
        (Outcome.NO_BASELINE, "append", "machine", Status.UNDECIDED),
        (Outcome.NO_BASELINE, "append", "unannounced", Status.UNDECIDED),
        (Outcome.NO_BASELINE, "missing", "other work", Status.RED),
        (Outcome.NO_BASELINE, "append", None, Status.RED),
        (Outcome.IMPROVEMENT, "accept", None, Status.RED),
    ],
)
def test_what_was_not_stored_is_undecided_if_it_tells_nothing_of_the_code(
    outcome, mode, cause, status
):
    found = make_finding(CASE, outcome)
    refused = {CASE.id: Refused(reason="because", cause=cause)}
    result = make_result([make_measurement(CASE, [0.01])], save_mode=mode, not_saved=refused)

    assert status_of(result, found) is status


def test_a_metric_that_a_busy_machine_left_out_is_undecided():
    found = make_finding(CASE, Outcome.NO_BASELINE)
    result = make_result(
        [make_measurement(CASE, [0.01])], save_mode="append", saved={CASE.id: LEFT_OUT}
    )

    assert status_of(result, found) is Status.UNDECIDED
