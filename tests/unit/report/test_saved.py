"""A note on storing names each file, and what was refused."""

from __future__ import annotations

from ddp_perf.baselines.save import Refused, Saved
from ddp_perf.core.verdict import Outcome
from ddp_perf.report.rows import report_summary, saving_notes
from tests.builders import make_cases, make_finding, make_measurement, make_result

ONE, TWO = make_cases()
FILE = "baselines/structure/quick.json"


def test_a_stored_structure_is_named_beside_the_session():
    result = make_result(
        [],
        saved={ONE.id: Saved(path="cpu.json", mode="missing")},
        not_saved={TWO.id: Refused(reason="too noisy")},
        saved_structures={ONE.id: FILE, TWO.id: FILE},
    )

    assert saving_notes(result) == {
        ONE.id: f"stored in cpu.json; the structure is stored in {FILE}",
        TWO.id: f"not stored: too noisy; the structure is stored in {FILE}",
    }


def test_a_settled_structure_is_reported_with_its_own_file():
    finding = make_finding(ONE, Outcome.NO_BASELINE, metric="structure")
    result = make_result(
        [make_measurement(ONE, [0.01])],
        findings=(finding,),
        not_saved={ONE.id: Refused(reason="one launch")},
        saved_structures={ONE.id: FILE},
    )

    (row,) = report_summary([result], complete=True).rows

    assert row.reason == f"because; stored in {FILE}"
