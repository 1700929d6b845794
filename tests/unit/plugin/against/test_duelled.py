"""A performance test fails, skips or passes by the verdict of the duel on its metric."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET

import msgspec
import pytest

from ddp_perf.core.verdict import DuelOutcome
from ddp_perf.core.work import Site
from ddp_perf.duel.values import MissingSide, read_duel
from ddp_perf.errors import BudgetError, ExitCode, LaunchError
from tests.duels import make_side_failure

ONE, TWO = "mlp-none-fp32-ws1-b16", "mlp-ddp-fp32-ws2-b16"
GREEN, RED = 0, 1
SLOWER, UNDECIDED_YET = DuelOutcome.SLOWER, DuelOutcome.UNDECIDED
# Tests of one rank and of two: step, tail, CPU time, memory, structure; and the efficiency twice.
JUDGED, LOSSES = 11, 2
SLOW = {"ratio": 1.1, "interval": (1.08, 1.12), "reason": "the interval excludes 1"}


def codes(against, *arguments):
    """Return the exit codes of the same session, as it is and strict."""
    return [against.run(*arguments, *strict).ret for strict in ((), ("--ddp-strict",))]


def test_equivalent_sides_pass_without_a_baseline_and_nothing_is_stored(against):
    done = against.run()

    done.assert_outcomes(passed=JUDGED, skipped=LOSSES)
    assert codes(against) == [GREEN, GREEN]
    assert [*(against.path / "baselines").iterdir()] == []
    assert against.project.launchers == []


def test_a_broken_baseline_file_is_not_read(against):
    (against.path / "baselines" / "structure").mkdir()
    (against.path / "baselines" / "structure" / "tiny.json").write_text("{")

    against.run().assert_outcomes(passed=JUDGED, skipped=LOSSES)


def test_one_duel_of_the_selected_cases_runs_at_the_first_test(against):
    against.run()
    against.run("-k", "ws1 and memory")
    against.run("-k", "ws2 and structure")  # with its one-rank leg

    assert against.asked == [[ONE, TWO], [ONE], [ONE, TWO]]


def test_collecting_runs_no_duel(against):
    against.run("--collect-only")

    assert against.asked == []


def test_a_slower_metric_fails_its_own_test_with_ratio_interval_and_cause(against):
    against.outcomes[1, "cpu_time"] = SLOWER
    against.changes[1, "cpu_time"] = SLOW
    site = Site(file="model.py", function="loss", text="x.clone()", line=7)
    against.cases[1] = {"lines": (site,)}

    done = against.run()

    done.assert_outcomes(passed=JUDGED - 1, skipped=LOSSES, failed=1)
    done.stdout.fnmatch_lines(
        [
            f"SLOWER: CPU time of a step of {ONE}: B ÷ A 1.100 (1.080 to 1.120), after 4 pairs",
            "the interval excludes 1",
            "edited line: model.py:7 loss: x.clone()",
        ]
    )
    assert "Traceback" not in str(done.stdout)
    assert codes(against) == [RED, RED]


def test_a_faster_metric_passes(against):
    against.outcomes[2, "step_time"] = DuelOutcome.FASTER

    assert codes(against) == [GREEN, GREEN]


def test_an_undecided_metric_is_skipped_with_what_it_takes(against):
    against.outcomes[1, "tail"] = UNDECIDED_YET
    against.changes[1, "tail"] = {"more_pairs": 40}

    done = against.run("-rs")

    done.assert_outcomes(passed=JUDGED - 1, skipped=LOSSES + 1)
    assert "about 40 more pairs would decide it; raise --ddp-budget" in str(done.stdout)
    assert codes(against) == [GREEN, ExitCode.UNDECIDED]


def test_what_no_number_of_pairs_decides_is_stated(against):
    against.outcomes[1, "tail"] = UNDECIDED_YET

    assert "no number of pairs up to a thousand would decide it" in str(against.run("-rs").stdout)


def test_red_precedes_undecided(against):
    against.outcomes = {(1, "tail"): UNDECIDED_YET, (2, "step_time"): SLOWER}

    assert codes(against) == [RED, RED]


def test_cpu_time_may_decide_in_the_place_of_the_step_time(against):
    why = "the hypervisor takes time"
    wall = {"decides": False, "why": why, "ratio": 1.07, "interval": (0.95, 1.2)}
    against.changes[1, "step_time"] = wall
    against.outcomes = {(1, "step_time"): UNDECIDED_YET, (1, "cpu_time"): SLOWER}

    done = against.run("-k", "step_time and ws1")

    done.assert_outcomes(failed=1, deselected=JUDGED + LOSSES - 1)
    done.stdout.fnmatch_lines(
        [
            f"SLOWER: step time of {ONE}, by CPU time of a step: B ÷ A 1.000 *",
            "step time: B ÷ A 1.070 (0.950 to 1.200), UNDECIDED",
        ]
    )


def test_a_metric_that_does_not_decide_is_skipped_and_never_undecided(against):
    against.changes[1, "cpu_time"] = {"decides": False, "why": "the wall time is steadier"}
    against.outcomes[1, "cpu_time"] = UNDECIDED_YET

    done = against.run("-rs", "-k", "cpu_time and ws1", "--ddp-strict")

    done.assert_outcomes(skipped=1, deselected=JUDGED + LOSSES - 1)
    assert "does not decide here: the wall time is steadier" in str(done.stdout)
    assert done.ret == GREEN


def test_a_case_that_fails_on_side_b_is_red_with_the_failure(against):
    case = against.project.cases()[0]
    against.cases[1] = {"failures": (make_side_failure("B", case),), "pairs": (), "metrics": ()}

    done = against.run("-k", "ws1")

    assert "side B fails: " in str(done.stdout)
    assert "Traceback" not in str(done.stdout)
    assert codes(against, "-k", "ws1") == [RED, RED]


def test_a_case_that_fails_on_side_a_alone_is_undecided(against):
    case = against.project.cases()[0]
    against.cases[1] = {"failures": (make_side_failure("A", case),), "pairs": (), "metrics": ()}

    assert "side A fails: " in str(against.run("-k", "ws1", "-rs").stdout)
    assert codes(against, "-k", "ws1") == [GREEN, ExitCode.UNDECIDED]


def test_a_case_that_a_side_lacks_is_undecided(against):
    against.whole = {"cases": (), "missing": (MissingSide(case_id=ONE, reason="A lacks it"),)}

    assert "A lacks it" in str(against.run("-k", "ws1", "-rs").stdout)
    assert codes(against, "-k", "ws1") == [GREEN, ExitCode.UNDECIDED]


def test_a_duel_that_ended_before_the_first_pair_is_undecided(against):
    against.cases[1] = {"pairs": (), "metrics": ()}

    assert codes(against, "-k", "ws1") == [GREEN, ExitCode.UNDECIDED]


def test_a_duel_that_cannot_run_fails_each_test_as_undecided_and_is_tried_once(against):
    def refuse(a, b, cases, on_update):
        against.asked.append(cases)
        raise LaunchError("no process can be started")

    against.play = refuse
    done = against.run("-k", "memory")

    assert str(done.stdout).count("no process can be started") >= 2
    assert len(against.asked) == 1
    assert codes(against) == [RED, ExitCode.UNDECIDED]


@pytest.mark.parametrize(("structure", "outcome"), [(None, "passed"), ("2 → 3 buckets", "skipped")])
def test_structures_are_shown_and_not_judged(against, structure, outcome):
    against.cases[1] = {"structure": structure}

    done = against.run("-k", "structure and ws1", "-rs", "--ddp-strict")

    done.assert_outcomes(**{outcome: 1}, deselected=JUDGED + LOSSES - 1)
    assert (structure or "") in str(done.stdout)


def test_a_metric_that_no_duel_judges_is_skipped_with_the_reason(against):
    against.project.suite(
        "tiny",
        (against.path / "bench_configs/tiny.yaml").read_text() + 'targets: {throughput: ">= 1"}\n',
    )

    done = against.run("-k", "loss or target", "-rs", "--ddp-strict")

    assert done.ret == GREEN
    done.stdout.fnmatch_lines(["*a duel does not judge loss*", "*a duel does not judge * target*"])


def test_junit_has_the_figures_of_both_sides(against):
    against.run("-k", "step_time and ws2", "--junitxml=junit.xml")

    (case,) = ET.parse(against.path / "junit.xml").iter("testcase")
    found = {one.get("name"): one.get("value") for one in case.iter("property")}
    assert found["verdict"] == "EQUIVALENT"
    assert found["against"] == "0.01"
    assert float(found["step_time_ms"]) == pytest.approx(10.05)


# ---- tests of the user's own ----


def own(against, body, fixture="ddp_measured"):
    tier = "@pytest.mark.cpu\n" if fixture == "ddp_measure" else ""
    text = f"import pytest\npytestmark = pytest.mark.perf\n\n{tier}"
    text += f"def test_own({fixture}):\n    {body}\n"
    (against.path / "tests" / "test_own.py").write_text(text)


def test_a_test_of_the_users_own_has_the_figures_of_side_b(against):
    own(
        against,
        "assert 0.009 < ddp_measured.figures.step_s < 0.011\n    assert ddp_measured.result",
    )

    against.run("tests/test_own.py").assert_outcomes(passed=2)


def test_a_test_of_findings_is_told_that_there_are_none(against):
    own(against, "assert ddp_measured.finding('step_time').verdict")

    done = against.run("tests/test_own.py", "-rs")

    done.assert_outcomes(skipped=2)
    done.stdout.fnmatch_lines(["*there is no finding, since no baseline judges the case*"])
    assert codes(against, "tests/test_own.py") == [GREEN, ExitCode.UNDECIDED]


def test_a_test_that_measures_a_case_gets_one_of_the_duel_and_no_other(against):
    own(against, f"ddp_measure({ONE!r}).assert_verdict('step_time')", "ddp_measure")

    against.run("tests", "-k", "own or (memory and ws1)").assert_outcomes(passed=2, deselected=12)
    alone = against.run("tests/test_own.py", "-rs")
    alone.assert_outcomes(skipped=1)
    assert f"only the cases of the selected tests, and so not {ONE}" in str(alone.stdout)


# ---- the end of a session ----


def test_the_summary_is_the_table_of_the_duel(against):
    against.outcomes[1, "step_time"] = SLOWER
    against.changes[1, "step_time"] = SLOW

    done = against.run()

    done.stdout.fnmatch_lines(["*= duel =*", "A: *", "*SLOWER*"])
    assert "nothing was measured" not in str(done.stdout)
    assert "work of tiny" not in str(done.stdout)


def test_the_report_has_the_duel_and_leaves_other_reports_alone(against):
    (against.path / "out").mkdir()
    (against.path / "out" / "index.html").write_text("of last night")

    done = against.run("--ddp-report=out")

    done.stdout.fnmatch_lines(["report: out/duel.html"])
    assert (against.path / "out" / "index.html").read_text() == "of last night"
    assert not (against.path / "out" / "results.json").exists()
    assert json.loads((against.path / "out" / "duel.json").read_text("utf-8"))
    assert (against.path / "out" / "duel.md").exists()


def test_the_results_file_has_the_whole_duel(against):
    against.run("--ddp-json=duel-results.json").stdout.fnmatch_lines(["results: duel-results.json"])

    duel = read_duel(against.path / "duel-results.json")
    assert [case.id for case in duel.cases] == [ONE, TWO]


def test_a_report_that_cannot_be_written_fails_the_session(against):
    (against.path / "out" / "duel.html").mkdir(parents=True)

    assert codes(against, "--ddp-report=out") == [RED, 3]


def test_a_github_job_gets_a_summary(against, monkeypatch):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(against.path / "step.md"))

    against.run("--ddp-report=out")

    assert "EQUIVALENT" in (against.path / "step.md").read_text("utf-8")


@pytest.mark.parametrize(("strict", "code"), [((), 2), (("--ddp-strict",), 130)])
def test_an_interrupted_duel_is_reported_with_what_was_measured(against, strict, code):
    def interrupted(a, b, cases, on_update):
        on_update(msgspec.structs.replace(against.duel(a, b, cases, on_update), complete=False))
        raise KeyboardInterrupt

    against.play = interrupted
    done = against.project.run(
        "--ddp-against=env:OMP_NUM_THREADS=1", "--ddp-report=out", *strict, no_reraise_ctrlc=True
    )

    assert done.ret == code
    done.stdout.fnmatch_lines(["*interrupted*", "report: out/duel.html"])


def test_a_budget_without_room_is_the_reason_in_the_comment_and_the_next_command(against):
    def too_short(a, b, cases, on_update):
        duel = against.duel(a, b, cases, on_update)
        on_update(msgspec.structs.replace(duel, complete=False, needed_s=300.0))
        raise BudgetError("the budget of 3 min has no room: raise it to 300s", needed_s=300.0)

    against.play = too_short
    done = against.run("--ddp-steps=12", "--ddp-report=out", "--ddp-strict")

    assert done.ret == ExitCode.UNDECIDED
    comment = (against.path / "out" / "duel.md").read_text("utf-8")
    assert "Nothing is judged: the budget of 3 min has no room for all cases" in comment
    assert "interrupted" not in comment
    done.stdout.fnmatch_lines(["next: pytest * --ddp-steps=12 * --ddp-budget=300s"])


@pytest.mark.slow
def test_with_xdist_it_is_refused_before_any_worker_is_started(against):
    done = against.project._pytester.runpytest(
        *("-p", "no:cacheprovider", "-m", "cpu", "-n", "1", "-p", "no:benchmark"),
        *("-k", "memory and ws1", "--ddp-against=env:OMP_NUM_THREADS=1"),
    )

    assert done.ret == pytest.ExitCode.USAGE_ERROR
    assert "-n with --ddp-against: timed tests cannot run beside other tests" in str(done.stderr)
