"""What a person reads of a duel: which rows, reasons, causes and limits; see test_canonical.py."""

from __future__ import annotations

import re

import msgspec
import pytest

from ddp_perf.core.verdict import Cause, DuelOutcome, Explanation
from ddp_perf.duel.values import CaseDuel, MissingSide, PowerEstimate, SideCase
from ddp_perf.render.markdown import report_markdown
from ddp_perf.render.terminal import report_text
from ddp_perf.report.duel.report import build_duel
from tests.builders import make_cases, make_probe
from tests.duels import (
    make_case_duel,
    make_duel,
    make_metric_duel,
    make_pairs,
    make_side_failure,
)
from tests.work_reports import make_change
from tests.works import make_site

ONE, TWO, *_ = make_cases(batch_sizes=[64, 128])
SLOWER, UNDECIDED = DuelOutcome.SLOWER, DuelOutcome.UNDECIDED
EQUIVALENT, FASTER = DuelOutcome.EQUIVALENT, DuelOutcome.FASTER


def shown(*cases, width=80, **changes):
    return report_text(build_duel(make_duel(*cases, **changes)), width)


def prose(*cases, **changes):
    return " ".join(shown(*cases, **changes).split())


def test_what_is_not_in_emulated_times_and_what_their_intervals_contain():
    *_, emulated = make_cases(emulated=[8], network="intra=1GB/s,intra_latency=9us")
    text = prose(make_case_duel(EQUIVALENT, emulated))

    assert "the time of intra=1GB/s,intra_latency=9us; the others' delays, congestion" in text
    assert "by ± 2.5 %, within which none is EQUIVALENT, and by ± 10 % of the change" in text
    assert "emulated" not in prose(make_case_duel(EQUIVALENT, ONE))


def beside(*metrics, of=EQUIVALENT):
    """Return a case of this outcome with further verdicts."""
    case = make_case_duel(of, ONE)
    return msgspec.structs.replace(case, metrics=(*case.metrics, *metrics))


def rows_of(case):
    """Return the verdict and the figure of each row."""
    return [(row[1].text, row[2].text) for row in build_duel(make_duel(case)).table.rows]


MEMORY = make_metric_duel(ONE, SLOWER, metric="peak_memory", a=2.0**30, b=1.1 * 2**30)


@pytest.mark.parametrize(
    ("metric", "row"),
    [
        ({"metric": "tail", "outcome": EQUIVALENT}, None),
        ({"metric": "tail", "outcome": SLOWER}, ("SLOWER", "tail")),
        ({"metric": "tail", "outcome": SLOWER, "decides": False}, ("(SLOWER)", "tail")),
        ({"metric": "tail", "outcome": UNDECIDED, "decides": False}, None),
    ],
)
def test_a_further_figure_has_a_row_only_if_it_is_certain_and_differs(metric, row):
    case = beside(make_metric_duel(ONE, **metric))

    assert rows_of(case) == [("EQUIVALENT", "step"), *([row] if row else [])]


def test_a_figure_has_its_unit_and_its_reason():
    text = shown(beside(MEMORY))

    assert "memory  1,024.0 MiB  1,126.4 MiB" in text
    assert "peak memory of a rank: SLOWER, because" in text


def test_a_figure_that_does_not_decide_states_why():
    loud = make_metric_duel(ONE, SLOWER, metric="tail", decides=False, why="it has stalls")

    assert "which does not decide (it has stalls): SLOWER" in prose(beside(loud))


def test_the_wall_time_of_the_step_has_a_row_where_cpu_time_decides():
    cpu = make_metric_duel(ONE, EQUIVALENT, metric="cpu_time")
    wall = make_metric_duel(ONE, UNDECIDED, ratio=1.07, decides=False, why="it is unsteady")
    case = make_case_duel(EQUIVALENT, ONE, metrics=(cpu, wall))

    assert ("(UNDECIDED)", "step") in rows_of(case)
    assert "it is unsteady" not in shown(case)


def test_the_reason_why_cpu_time_decides_is_stated_once():
    cases = [
        make_case_duel(
            EQUIVALENT,
            case,
            metrics=(make_metric_duel(case, EQUIVALENT, metric="cpu_time", why="it is steady"),),
        )
        for case in (ONE, TWO)
    ]
    assert shown(*cases).count("it is steady; so too in 1 other case") == 1


def test_the_cause_is_the_edited_line_the_option_the_work_and_the_term():
    cause = Cause(kind="compute", change_s=0.001, share=0.9, evidence=("backward grew",))
    why = Explanation(case_id="x", step_change_s=0.0011, causes=(cause,), terms=(), launches=4)
    text = prose(
        make_case_duel(
            SLOWER,
            work=(make_change(),),
            lines=(make_site(7),),
            options=("ddp.bucket_cap_mb: 25 → 5",),
            structure="2 buckets → 9",
            explanation=why,
        )
    )
    for part in (
        "edited line: my_model.py:7 Block.forward: x = x.clone()",
        "changed option: ddp.bucket_cap_mb: 25 → 5",
        "more work: +2 aten.clone (float32), +134 MB, in backward of layers.*",
        "structure: 2 buckets → 9",
        "why: compute +1.00 ms (90% of it): backward grew",
    ):
        assert part in text


def test_more_work_is_shown_although_the_time_is_equivalent():
    assert "more work: +2 aten.clone" in shown(make_case_duel(EQUIVALENT, work=(make_change(),)))


def test_terms_that_changed_have_their_uncertainty():
    a, b = (
        make_pairs(ONE, [(0.01, 0.01)] * 4, probe=make_probe(backward=backward))
        for backward in (0.004, 0.005)
    )
    pairs = [msgspec.structs.replace(one, b=other.b) for one, other in zip(a, b, strict=True)]

    text = shown(make_case_duel(SLOWER, ONE, pairs=tuple(pairs)))

    assert "terms of the step that changed: backward 4.00 → 5.00 ms (+1.00 ± 0.00)" in text


@pytest.mark.parametrize(("outcome", "named"), [(SLOWER, True), (FASTER, False)])
def test_terms_that_chance_explains_are_named_only_for_a_slower_case(outcome, named):
    text = shown(make_case_duel(outcome, work=(make_change(),)))

    assert ("timing data, forward and so on by themselves did not" in text) == named


@pytest.mark.parametrize(
    ("work", "differences", "sentence"),
    [
        ((), (), "no difference of work or options, of versions or of settings was found"),
        (None, ("torch: 1 → 2",), "no difference of options was found, but the environments"),
    ],
)
def test_without_any_difference_the_text_states_what_was_compared(work, differences, sentence):
    assert sentence in prose(make_case_duel(SLOWER, work=work), differences=differences)


def test_many_differences_of_the_environments_are_shortened_and_whole_in_a_comment():
    duel = make_duel(differences=tuple(f"package{i}: 1 → 2" for i in range(30)))

    text = " ".join(report_text(build_duel(duel), 80).split())
    assert "package7: 1 → 2; and 22 more: see duel.html" in text
    assert "- package29: 1 → 2" in report_markdown(build_duel(duel))


def test_an_undecided_case_states_what_it_can_see_and_what_it_takes():
    metric = make_metric_duel(ONE, UNDECIDED, more_pairs=40, minimum_detectable=0.062)
    lines = shown(make_case_duel(UNDECIDED, ONE, metrics=(metric,))).splitlines()

    seen = "if the whole budget is spent on pairs, they find a slow-down of 6.2 % nine times in ten"
    assert seen in " ".join(" ".join(lines).split())
    assert lines[-2:] == [
        "about 40 more pairs would decide 1 case",
        "next: ddp-perf duel main . --budget 3m",
    ]


def test_what_the_machine_can_see_is_taken_from_its_own_launches_before_the_first_look():
    estimate = PowerEstimate(
        case_id=ONE.id,
        metric="step_time",
        launches=6,
        spread=0.02,
        minimum_detectable=0.034,
        pairs=20,
    )
    case = make_case_duel(UNDECIDED, metrics=(), power=(estimate,))
    assert "a slow-down of 3.4 % would be found nine times in ten" in shown(case)


def broken(**changes):
    failed = make_side_failure("B", ONE, **changes)
    return CaseDuel(cases=SideCase(a=ONE, b=ONE), failures=(failed,))


def test_a_failure_has_its_side_its_rank_and_the_end_of_its_output():
    case = broken(output="\n".join(f"line {i}" for i in range(50)))

    text = shown(case)
    assert "  side B failed: launch 1: rank 1: exited with code 3" in text
    assert "39 lines left out: see duel.html" in text
    assert "line 49" in text
    assert "line 3\n" not in text
    long = report_markdown(build_duel(make_duel(broken(output="line\n" * 5_000))))
    assert "side B failed: " in long


def test_a_missing_case_and_an_interrupt_are_stated():
    missing = (MissingSide(case_id="gpt", reason="side A lacks it"),)
    text = shown(make_case_duel(EQUIVALENT), missing=missing, complete=False)
    assert "2 cases: 1 EQUIVALENT, 1 NOT COMPARED" in text
    assert "NOT COMPARED: gpt: side A lacks it" in text
    assert "the duel was interrupted" in text
    assert text.splitlines()[-1] == "next: ddp-perf duel main ."


def test_a_duel_that_leaves_nothing_to_do_has_no_command():
    assert "next:" not in shown(make_case_duel(EQUIVALENT))


@pytest.mark.parametrize("width", [20, 80, 140])
def test_no_line_but_a_command_or_an_id_is_wider_than_the_terminal(width):
    long = msgspec.structs.replace(ONE, id="a-very-" + "long-" * 30 + "id")
    outcomes = ((SLOWER, ONE), (UNDECIDED, TWO), (FASTER, long))
    cases = [make_case_duel(outcome, case, work=(make_change(),)) for outcome, case in outcomes]

    for line in shown(*cases, width=width).splitlines():
        assert len(line) <= max(width, 80) or line.startswith("next: ") or long.id in line


def test_a_comment_fits_with_whole_folds():
    output = "\n".join(["x" * 70] * 100)
    cases = [
        CaseDuel(
            cases=SideCase(a=case, b=case),
            failures=(make_side_failure(side, case, output=output, detail="y" * 900),),
        )
        for number in range(300)
        for side in ["AB"[number % 2]]
        for case in [msgspec.structs.replace(ONE, id=f"{'case-' * 60}{number}")]
    ]
    missing = tuple(MissingSide(case_id="gone" * 100, reason="z" * 900) for _ in range(300))
    many = make_duel(*cases, missing=missing, differences=tuple("v" * 900 for _ in range(300)))

    text = report_markdown(build_duel(many))

    assert len(text) <= 60_000
    assert text.startswith("## ❌ BROKEN: case-case-")
    assert "see duel.html" in text
    for tag in ("details", "pre"):
        assert len(re.findall(f"<{tag}>", text)) == len(re.findall(f"</{tag}>", text))
