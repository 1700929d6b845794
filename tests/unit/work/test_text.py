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


@pytest.mark.parametrize(
    ("made", "sentence"),
    [
        (
            change(phase="backward", bytes=134_217_728, places=HERE),
            "+2 aten.clone (float32), +134 MB, in backward of layers.* (my_model.py:42"
            " Block.forward)",
        ),
        (
            change(before=3, after=1, bytes=-4096, phase="forward", places=OTHERS),
            "−2 aten.clone (float32), −4,096 bytes, in forward of layers.* (my_model.py:42"
            " Block.forward) and 1 other line",
        ),
        (
            change(what="aten.mm: bfloat16 → float32", before=6, after=6, flops=12_300_000_000),
            "6 aten.mm: bfloat16 → float32, +12.3G FLOPs",
        ),
        (
            change(before=2, after=2, phase="forward", moved_from="backward", places=HERE),
            "2 aten.clone (float32) moved from backward to forward, in layers.* (my_model.py:42"
            " Block.forward)",
        ),
        (
            change("host_read", "aten._local_scalar_dense (float32)", after=1, phase="forward"),
            "+1 host read by aten._local_scalar_dense (float32), in forward",
        ),
        (
            change("collective", "all_reduce (float32)", 1, 4, detail="400 → 4 × 100 bytes"),
            "+3 all_reduce (float32) (400 → 4 × 100 bytes)",
        ),
        (
            change("collective", "order of the collectives", 2, 2),
            "order of the collectives: 2 as before",
        ),
        (
            change("collective", "overlap of all_reduce (float32)", 9 * 10**12, 0, unit="FLOPs"),
            "overlap of all_reduce (float32): 9T → 0 FLOPs after it",
        ),
        (
            change("memory", "peak memory", 10**9, 1_200_000_000, unit="bytes"),
            "peak memory 1,000 MB → 1,200 MB (+200 MB)",
        ),
        (change("memory", "allocations", 10, 13, bytes=64), "allocations 10 → 13, +64 bytes"),
        (change("calls", "Model.loop", 1, 64), "+63 calls of Model.loop"),
        (change("calls", "Model.loop", 1, 2), "+1 call of Model.loop"),
        (change("autograd", "CloneBackward0", 0, 1), "+1 CloneBackward0 in the autograd graph"),
        (
            change("compilation", "graph break", 0, 1, detail="call of print"),
            "+1 graph break (call of print)",
        ),
        (change("compilation", "recompilation", 2, 0), "−2 recompilations"),
        (change("model", "parameters", 1_574_400, 1_574_401), "parameters 1,574,400 → 1,574,401"),
    ],
)
def test_each_change_has_its_sentence(made, sentence):
    assert change_sentence(made) == sentence


def test_a_module_without_a_name_is_no_place():
    nameless = (Place(site=msgspec.structs.replace(SITE, module="*.*"), count=2),)
    assert change_sentence(change(phase="backward", places=nameless)) == (
        "+2 aten.clone (float32), in backward (my_model.py:42 Block.forward)"
    )


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
