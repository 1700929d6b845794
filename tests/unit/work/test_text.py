"""The sentences of changes and of verdicts."""

from __future__ import annotations

import msgspec
import pytest

from ddp_perf.core.verdict import Outcome
from ddp_perf.work.text import (
    bytes_text,
    change_sentence,
    change_summary,
    place_text,
    verdict_lines,
)
from ddp_perf.work.values import Place, WorkChange, WorkVerdict
from tests.works import SITE, make_site

HERE = (Place(site=SITE, count=2),)
OTHERS = (*HERE, Place(site=make_site(50), count=1), Place(site=make_site(50, "y"), count=1))


def change(kind="operation", what="aten.clone (float32)", before=0, after=2, **fields):
    return WorkChange(kind=kind, what=what, before=before, after=after, **fields)


def test_each_change_has_its_sentence(file_regression):
    nameless = (Place(site=msgspec.structs.replace(SITE, module="*.*"), count=2),)
    made = [
        change(phase="backward", bytes=134_217_728, places=HERE),
        change(phase="backward", places=nameless),
        change(before=3, after=1, bytes=-4096, phase="forward", places=OTHERS),
        change(what="aten.mm: bfloat16 → float32", before=6, after=6, flops=12_300_000_000),
        change(before=2, after=2, phase="forward", moved_from="backward", places=HERE),
        change("host_read", "aten._local_scalar_dense (float32)", after=1, phase="forward"),
        change("host_read", "aten.item", before=2, after=0),
        change("collective", "all_reduce (float32)", 1, 4, detail="400 → 4 × 100 bytes"),
        change("collective", "order of the collectives", 2, 2),
        change("collective", "overlap of all_reduce (float32)", 9 * 10**12, 0, unit="FLOPs"),
        change("memory", "peak memory", 10**9, 1_200_000_000, unit="bytes"),
        change("memory", "allocations", 10, 13, bytes=64),
        change("calls", "Model.loop", 1, 64),
        change("calls", "Model.loop", 1, 2),
        change("autograd", "CloneBackward0", 0, 1),
        change("compilation", "graph break", 0, 1, detail="call of print"),
        change("compilation", "recompilation", 2, 0),
        change("model", "parameters", 1_574_400, 1_574_401),
    ]

    text = "\n".join(map(change_sentence, made))
    file_regression.check(text, extension=".txt", encoding="utf-8")


def test_a_summary_leaves_the_place_out():
    made = change(phase="backward", places=HERE)
    assert change_summary(made) == "+2 aten.clone (float32)"
    assert place_text(SITE) == "my_model.py:42 Block.forward"


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 bytes"),
        (4096, "4,096 bytes"),
        (99_999, "99,999 bytes"),
        (100_000, "0.1 MB"),
        (12_595_200, "12.6 MB"),
        (134_217_728, "134 MB"),
        (1_234_000_000, "1,234 MB"),
    ],
)
def test_bytes_are_written_in_mb(size, text):
    assert bytes_text(size) == text


def test_a_verdict_is_its_reason_its_options_and_its_first_changes():
    verdict = WorkVerdict(
        outcome=Outcome.REGRESSION,
        reason="the step does more work than stored",
        changes=(change(after=1), change(after=2), change(after=3)),
        options=("ddp.bucket_cap_mb: 25 → 5 (quick.yaml:5)",),
    )
    assert verdict_lines(verdict, most=1) == [
        "REGRESSION: changed option ddp.bucket_cap_mb: 25 → 5 (quick.yaml:5): the step does more"
        " work than stored",
        "changed option: ddp.bucket_cap_mb: 25 → 5 (quick.yaml:5)",
        "+1 aten.clone (float32)",
        "and 2 more changes",
    ]
    assert len(verdict_lines(verdict)) == 5


def test_the_first_line_of_a_verdict_names_its_cause():
    """pytest's summary shows no other line."""
    reason = "the step does more work than stored"
    edited = WorkVerdict(outcome=Outcome.REGRESSION, reason=reason, lines=(SITE,))
    named = msgspec.structs.replace(edited, reason="more (my_model.py:42 Block.forward)")
    option = WorkVerdict(
        outcome=Outcome.REGRESSION, reason=reason, options=("amp: no → bf16 (quick.yaml:5)",)
    )
    assert verdict_lines(edited)[0] == (
        f"REGRESSION: edited line my_model.py:42 Block.forward: {reason}"
    )
    assert verdict_lines(named)[0] == "REGRESSION: more (my_model.py:42 Block.forward)"
    assert verdict_lines(option)[0] == (
        f"REGRESSION: changed option amp: no → bf16 (quick.yaml:5): {reason}"
    )
