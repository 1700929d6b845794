"""The keys of columns: what CSV and JSON call their figures."""

from __future__ import annotations

import pytest

from ddp_perf.core.verdict import PairedVerdict
from ddp_perf.duel.values import MetricDuel
from ddp_perf.report.columns import session_columns
from ddp_perf.report.duel.report import DUEL_COLUMNS
from ddp_perf.report.duel.rows import DuelRow
from ddp_perf.report.figures import UTILISATION
from ddp_perf.report.rows import CaseRow
from ddp_perf.report.work_rows import WORK_COLUMNS, StepFigures, WorkRow


@pytest.mark.parametrize(
    ("columns", "structs"),
    [
        (session_columns(), [CaseRow]),
        ([one.column for one in UTILISATION], [CaseRow]),
        (DUEL_COLUMNS, [DuelRow, MetricDuel, PairedVerdict]),
        (WORK_COLUMNS, [WorkRow, StepFigures]),
    ],
)
def test_a_key_is_a_field_of_the_file_and_each_column_has_a_meaning(columns, structs):
    fields = {name for struct in structs for name in struct.__struct_encode_fields__}

    assert {one.key for one in columns} - {""} <= fields
    assert all(one.meaning for one in columns)
