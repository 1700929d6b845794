"""The comment of a pull request: it fits, it can be found again, and it interprets no text."""

from __future__ import annotations

import re

import msgspec

from ddp_perf.core.verdict import DuelOutcome
from ddp_perf.duel.values import CaseDuel, MissingSide, SideCase
from ddp_perf.report.directory import DUEL_MARKER, duel_markdown
from ddp_perf.report.duel.report import build_duel
from tests.builders import make_case
from tests.duels import TREE, make_case_duel, make_duel, make_metric_duel, make_side_failure
from tests.work_reports import make_change

CASE = make_case()
HOSTILE = "<script>alert(1)</script> | `x` </details></pre>"


def comment(duel):
    return duel_markdown(build_duel(duel))


def named(case_id):
    return msgspec.structs.replace(CASE, id=case_id)


def test_the_marker_is_the_first_line_and_the_worst_case_comes_first():
    equal = make_case_duel(DuelOutcome.EQUIVALENT, named("equal"))
    lines = comment(make_duel(equal, make_case_duel(DuelOutcome.SLOWER))).splitlines()
    assert lines[0] == DUEL_MARKER
    assert lines[1] == "## ❌ SLOWER: B against A"
    rows = [line for line in lines if line.startswith("| ")]
    assert (
        "❌ SLOWER | step | 10.00 ms | 11.00 ms | 1.100 | 1.080 to 1.120 | 3.1 % | 4 |" in rows[1]
    )
    assert rows[2].startswith("| equal | ✅ EQUIVALENT ")


def test_a_red_case_has_its_cause_and_an_undecided_one_a_fold():
    undecided = make_case_duel(DuelOutcome.UNDECIDED, named("open"))
    text = comment(make_duel(undecided, make_case_duel(DuelOutcome.SLOWER, work=(make_change(),))))
    assert text.index(f"**{CASE.id}: SLOWER**") < text.index("<summary>open: UNDECIDED</summary>")
    assert "- more work: +2 aten.clone (float32)" in text
    assert "my\\_model.py:42" in text


def test_the_next_command_is_there_as_it_is_typed():
    case = make_case_duel(DuelOutcome.SLOWER)
    assert "<pre>ddp-perf bisect --good main --bad HEAD --case " in comment(make_duel(case))


def many():
    """Return a duel that no comment could contain."""
    output = "\n".join(["x" * 70] * 100)
    cases = [
        CaseDuel(
            cases=SideCase(a=case, b=case),
            failures=(make_side_failure(side, case, output=output, detail="y" * 900),),
        )
        for case, side in (
            (named(f"{'case-' * 60}{number}"), "A" if number % 2 else "B") for number in range(300)
        )
    ]
    missing = tuple(MissingSide(case_id="gone" * 100, reason="z" * 900) for _ in range(300))
    return make_duel(*cases, missing=missing, differences=tuple("v" * 900 for _ in range(300)))


def test_a_comment_is_never_longer_than_github_takes_and_no_fold_is_cut():
    text = comment(many())
    assert len(text) <= 60_000
    assert text.startswith(DUEL_MARKER)
    assert "see duel.html" in text
    for tag in ("details", "pre"):
        assert len(re.findall(f"<{tag}>", text)) == len(re.findall(f"</{tag}>", text))
    assert "<pre>" in text


def test_a_long_failure_still_names_its_side():
    failed = make_side_failure("B", CASE, output="line\n" * 5_000)
    assert "side B failed: " in comment(
        make_duel(CaseDuel(cases=SideCase(a=CASE, b=CASE), failures=(failed,)))
    )


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
    text = comment(make_duel(case, b=side, differences=(HOSTILE,)))
    assert "<script" not in text
    assert text.count("</details>") == text.count("<details>")
    assert text.count("</pre>") == text.count("<pre>")
