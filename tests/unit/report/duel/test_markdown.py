"""The comment of a pull request: it fits, it can be found again, and it interprets no text."""

from __future__ import annotations

import re

import msgspec
import pytest

from ddp_perf.core.verdict import DuelOutcome
from ddp_perf.core.work import Site
from ddp_perf.duel.values import CaseDuel, MissingSide, SideCase
from ddp_perf.report.duel.markdown import MARKER, duel_markdown
from ddp_perf.work.values import Place
from tests.builders import make_case
from tests.duels import TREE, make_case_duel, make_duel, make_metric_duel, make_side_failure
from tests.work_reports import make_change, make_counted, make_same, make_work_report

CASE = make_case()
HOSTILE = "<script>alert(1)</script> | `x` </details></pre>"


def named(case_id):
    return msgspec.structs.replace(CASE, id=case_id)


def test_the_marker_is_the_first_line_and_the_worst_case_comes_first():
    equal = make_case_duel(DuelOutcome.EQUIVALENT, named("equal"))
    lines = duel_markdown(make_duel(equal, make_case_duel(DuelOutcome.SLOWER))).splitlines()
    assert lines[0] == MARKER
    assert lines[1] == "## ❌ SLOWER: the tree (9d8e7f6, changed) against main (3f2a1c9)"
    rows = [line for line in lines if line.startswith("| ")]
    assert (
        "❌ SLOWER | step | 10.00 ms | 11.00 ms | 1.100 | 1.080 to 1.120 | 3.1 % | 4 |" in rows[1]
    )
    assert rows[2].startswith("| equal | ✅ EQUIVALENT ")


def test_a_case_that_is_not_equivalent_has_a_fold_with_its_cause():
    text = duel_markdown(make_duel(make_case_duel(DuelOutcome.SLOWER, work=(make_change(),))))
    assert f"<summary>{CASE.id}: SLOWER</summary>" in text
    assert "- more work: +2 aten.clone (float32)" in text
    assert "my\\_model.py:42" in text


def test_the_next_command_is_there_as_it_is_typed():
    case = make_case_duel(DuelOutcome.SLOWER)
    assert "<pre>ddp-perf bisect --good main --bad HEAD --case " in duel_markdown(make_duel(case))


def test_counted_work_is_in_the_same_comment():
    text = duel_markdown(
        make_duel(make_case_duel(DuelOutcome.EQUIVALENT)), make_work_report(make_counted())
    )
    assert text.count(MARKER) == 1
    assert text.index("## ✅ EQUIVALENT") < text.index("## ❌ Work: RED")


def many():
    """Return a duel and a work report that no comment could contain."""
    output = "\n".join(["x" * 70] * 100)
    cases = [
        CaseDuel(
            cases=SideCase(a=case, b=case),
            failures=(make_side_failure("B", case, output=output, detail="y" * 900),),
        )
        for case in (named(f"{'case-' * 60}{number}") for number in range(300))
    ]
    missing = tuple(MissingSide(case_id="gone" * 100, reason="z" * 900) for _ in range(300))
    changes = [
        make_change(
            places=(Place(site=Site(file="m" * 300, function="f", text="", line=n), count=1),)
        )
        for n in range(50)
    ]
    work = make_work_report(*(make_counted(*changes, case=named(f"c{n}")) for n in range(100)))
    differences = tuple("v" * 900 for _ in range(300))
    return make_duel(*cases, missing=missing, differences=differences), work


@pytest.mark.parametrize("with_work", [False, True])
def test_a_comment_is_never_longer_than_github_takes_and_no_fold_is_cut(with_work):
    duel, work = many()
    text = duel_markdown(duel, work if with_work else None)
    assert len(text) <= 60_000
    assert text.startswith(MARKER)
    assert "see duel.html" in text
    assert ("## ❌ Work" in text) is with_work
    for tag in ("details", "pre"):
        assert len(re.findall(f"<{tag}>", text)) == len(re.findall(f"</{tag}>", text))
    assert text.count("<details>") >= 3


def test_a_short_report_of_work_keeps_its_table_beside_a_long_duel():
    duel, _ = many()
    assert "all cases</summary>" in duel_markdown(duel, make_work_report(make_same()))


def test_texts_are_not_interpreted():
    hostile = named(f"a {HOSTILE}")
    case = make_case_duel(
        DuelOutcome.SLOWER,
        hostile,
        metrics=(make_metric_duel(hostile, DuelOutcome.SLOWER, reason=HOSTILE),),
        options=(HOSTILE,),
        failures=(make_side_failure("B", hostile, output=HOSTILE, detail=HOSTILE),),
    )
    side = msgspec.structs.replace(TREE, label=HOSTILE, spec=HOSTILE)
    text = duel_markdown(make_duel(case, b=side, differences=(HOSTILE,)))
    assert "<script" not in text
    assert text.count("</details>") == text.count("<details>")
    assert text.count("</pre>") == text.count("<pre>")
