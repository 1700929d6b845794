"""The text of a duel: a tired person reads it on a narrow terminal without colour."""

from __future__ import annotations

import msgspec
import pytest

from ddp_perf.core.verdict import Cause, DuelOutcome, Explanation
from ddp_perf.duel.values import CaseDuel, MissingSide, PowerEstimate, SideCase
from ddp_perf.render.terminal import report_text
from ddp_perf.report.duel.report import build_duel
from tests.builders import make_case, make_cases, make_probe
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
LONG = msgspec.structs.replace(ONE, id="a-very-" + "long-" * 30 + "id")
SLOWER, UNDECIDED = DuelOutcome.SLOWER, DuelOutcome.UNDECIDED
EQUIVALENT, FASTER = DuelOutcome.EQUIVALENT, DuelOutcome.FASTER


def shown(*cases, width=80, **changes):
    return report_text(build_duel(make_duel(*cases, **changes)), width)


def line_with(text, part):
    (line,) = [line for line in text.splitlines() if part in line]
    return line


def test_it_begins_with_the_sides_and_ends_with_one_command():
    lines = shown(make_case_duel(SLOWER)).splitlines()
    assert lines[:2] == ["A: main (3f2a1c9)", "B: the tree (9d8e7f6, changed)"]
    assert lines[-1].startswith("next: ddp-perf bisect --good main --bad HEAD --case ")


def test_a_duel_that_leaves_nothing_to_do_ends_with_its_conclusion():
    text = shown(make_case_duel(EQUIVALENT))
    assert "B against A: EQUIVALENT" in text
    assert "next:" not in text
    assert " ".join(text.split()).endswith("at most 2 %, and as much of any FASTER")


def test_a_case_is_one_line_with_both_steps_and_its_verdict():
    text = shown(make_case_duel(SLOWER), width=140)
    cells = line_with(text, "1.100").split("  ")
    assert [cell.strip() for cell in cells if cell.strip()] == [
        make_case().id,
        "SLOWER",
        "step",
        "10.00 ms",
        "11.00 ms",
        "1.100",
        "1.080 to 1.120",
        "4",
    ]


@pytest.mark.parametrize("width", [20, 80, 140])
def test_no_line_but_a_command_or_an_id_is_wider_than_the_terminal(width):
    cases = [
        make_case_duel(outcome, case, work=(make_change(),))
        for outcome, case in ((SLOWER, ONE), (UNDECIDED, TWO), (FASTER, LONG))
    ]
    for line in shown(*cases, width=width).splitlines():
        assert len(line) <= max(width, 80) or line.startswith("next: ") or LONG.id in line


def test_the_table_names_cases_by_what_differs():
    text = shown(make_case_duel(SLOWER, ONE), make_case_duel(EQUIVALENT, TWO))
    assert [line.split()[:2] for line in text.splitlines() if line.startswith(("none", "ddp"))] == [
        ["none-ws1", "SLOWER"],
        ["ddp-ws2", "EQUIVALENT"],
    ]


def test_a_long_id_is_whole_on_a_line_above_its_figures():
    lines = shown(make_case_duel(FASTER, LONG)).splitlines()
    assert "FASTER" in lines[lines.index(LONG.id) + 1]


def test_a_metric_that_decides_and_is_equivalent_has_no_line():
    case = make_case_duel(EQUIVALENT)
    metrics = (*case.metrics, make_metric_duel(ONE, EQUIVALENT, metric="tail"))
    assert "tail" not in shown(msgspec.structs.replace(case, metrics=metrics))


def test_a_further_metric_that_is_slower_has_a_line_with_its_unit():
    case = make_case_duel(EQUIVALENT)
    memory = make_metric_duel(ONE, SLOWER, metric="peak_memory", a=2.0**30, b=1.1 * 2**30)
    text = shown(msgspec.structs.replace(case, metrics=(*case.metrics, memory)))
    assert "memory  1,024.0 MiB  1,126.4 MiB" in text
    assert "peak memory of a rank: SLOWER, because" in text


def test_each_row_has_the_verdict_on_its_own_figure():
    case = make_case_duel(EQUIVALENT)
    memory = make_metric_duel(ONE, SLOWER, metric="peak_memory", a=2.0**30, b=1.1 * 2**30)
    text = shown(msgspec.structs.replace(case, metrics=(*case.metrics, memory)), width=120)
    assert "EQUIVALENT  step" in text
    assert "SLOWER      memory" in text


def test_a_figure_that_does_not_decide_is_shown_only_if_it_is_certain_and_differs():
    case = make_case_duel(EQUIVALENT)
    beside = [
        make_metric_duel(ONE, outcome, metric="tail", decides=False, why="it has stalls")
        for outcome in (UNDECIDED, SLOWER)
    ]
    silent, loud = (
        shown(msgspec.structs.replace(case, metrics=(*case.metrics, one))) for one in beside
    )
    assert "tail" not in silent
    assert "(SLOWER)" in loud
    assert "which does not decide (it has stalls): SLOWER" in " ".join(loud.split())


def test_the_wall_time_of_the_step_has_a_line_where_cpu_time_decides():
    cpu = make_metric_duel(ONE, EQUIVALENT, metric="cpu_time")
    wall = make_metric_duel(ONE, UNDECIDED, ratio=1.07, decides=False, why="it is unsteady")
    text = shown(make_case_duel(EQUIVALENT, ONE, metrics=(cpu, wall)))
    assert "(UNDECIDED)" in line_with(text, " 1.070 ")
    assert "it is unsteady" not in text


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
    case = make_case_duel(
        SLOWER,
        work=(make_change(),),
        lines=(make_site(7),),
        options=("ddp.bucket_cap_mb: 25 → 5",),
        structure="2 buckets → 9",
    )
    text = " ".join(shown(case).split())
    assert "edited line: my_model.py:7 Block.forward: x = x.clone()" in text
    assert "changed option: ddp.bucket_cap_mb: 25 → 5" in text
    assert "more work: +2 aten.clone (float32), +134 MB, in backward of layers.*" in text
    assert "structure: 2 buckets → 9" in text


def test_more_work_is_shown_although_the_time_is_equivalent():
    assert "more work: +2 aten.clone" in shown(make_case_duel(EQUIVALENT, work=(make_change(),)))


def test_terms_that_changed_have_their_uncertainty():
    pairs = tuple(
        msgspec.structs.replace(one, b=other.b)
        for one, other in zip(
            make_pairs(ONE, [(0.01, 0.01)] * 4, probe=make_probe()),
            make_pairs(ONE, [(0.01, 0.01)] * 4, probe=make_probe(backward=0.005)),
            strict=True,
        )
    )
    text = shown(make_case_duel(SLOWER, ONE, pairs=pairs))
    assert "terms of the step that changed: backward 4.00 → 5.00 ms (+1.00 ± 0.00)" in text


def test_terms_that_chance_explains_are_named_only_for_a_slower_case():
    slower, equal = (make_case_duel(outcome, work=(make_change(),)) for outcome in (SLOWER, FASTER))
    assert "no term of the step changed for certain; the largest change:" in shown(slower)
    assert "no term of the step" not in shown(equal)


def test_the_causes_by_the_terms_are_stated_with_their_evidence():
    cause = Cause(kind="compute", change_s=0.001, share=0.9, evidence=("backward grew",))
    why = Explanation(case_id="x", step_change_s=0.0011, causes=(cause,), terms=(), launches=4)
    text = shown(make_case_duel(SLOWER, explanation=why))
    assert "why: compute +1.00 ms (90%): backward grew" in text


def test_without_any_difference_the_text_states_what_was_compared():
    text = " ".join(shown(make_case_duel(SLOWER)).split())
    assert "no difference of work or options, of versions or of settings was found" in text
    other = shown(make_case_duel(SLOWER, work=None), differences=("torch: 2.11.0 → 2.13.0",))
    assert "no difference of options was found, but the environments differ" in other
    assert "differences: torch: 2.11.0 → 2.13.0" in other


def test_many_differences_of_the_environments_are_shortened():
    text = shown(differences=tuple(f"package{i}: 1 → 2" for i in range(30)))
    assert "package7: 1 → 2; and 22 more: see duel.html" in " ".join(text.split())


def test_an_undecided_case_states_what_it_can_see_and_what_it_takes():
    case = make_case_duel(UNDECIDED)
    metric = make_metric_duel(case.cases.b, UNDECIDED, more_pairs=40, minimum_detectable=0.062)
    lines = shown(msgspec.structs.replace(case, metrics=(metric,))).splitlines()
    assert "  a whole budget of pairs finds a slow-down of 6.2 % nine times in ten" in lines
    assert lines[-2] == "about 40 more pairs would decide 1 case"
    assert lines[-1] == "next: ddp-perf duel main . --budget 3m"


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
    assert "found nine times in ten: 3.4 %" in shown(case)


def test_a_failure_has_its_rank_and_its_last_output():
    failed = make_side_failure("B", ONE, output="\n".join(f"line {i}" for i in range(50)))
    case = CaseDuel(cases=SideCase(a=ONE, b=ONE), failures=(failed,))
    text = shown(case)
    assert f"{ONE.id}: BROKEN" in text
    assert f"  side B failed: {ONE.id}: launch 1: rank 1: exited with code 3" in text
    assert "line 49" in text
    assert "line 3\n" not in text
    assert "39 lines left out: see duel.html" in text


def test_a_missing_case_and_an_interrupt_are_stated():
    missing = (MissingSide(case_id="gpt", reason="side A lacks it"),)
    text = shown(make_case_duel(EQUIVALENT), missing=missing, complete=False)
    assert "2 cases: 1 EQUIVALENT, 1 NOT COMPARED" in text
    assert "NOT COMPARED: gpt: side A lacks it" in text
    assert "the duel was interrupted" in text
    assert text.splitlines()[-1] == "next: ddp-perf duel main ."


def test_a_duel_without_a_case_has_a_text():
    assert "nothing was compared" in shown()
