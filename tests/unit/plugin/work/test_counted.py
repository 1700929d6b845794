"""A work test fails, skips or passes by its verdict, and its message ends with one command."""

from __future__ import annotations

import json
import shlex
import xml.etree.ElementTree as ET

import pytest

from ddp_perf.errors import ExitCode, LaunchError
from tests.builders import make_failure
from tests.projects import TINY

ONE, TWO = "mlp-none-fp32-ws1-b16", "mlp-ddp-fp32-ws2-b16"
NODE = "tests/test_work.py::test_work"
RED, GREEN = 1, 0


def codes(counting, *arguments):
    """Return the exit codes of the same session, as it is and strict."""
    return [counting.run(*arguments, *strict).ret for strict in ((), ("--ddp-strict",))]


def test_what_is_stored_passes(counting):
    counting.store()

    counting.run().assert_outcomes(passed=2)
    assert codes(counting) == [GREEN, GREEN]


def test_more_work_fails_with_the_case_the_line_and_the_command_and_no_traceback(counting):
    counting.store()
    counting.clones = 3

    done = counting.run("-k", "ws2")

    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(
        [
            f"{TWO}: REGRESSION: the step does more work than stored: +1 aten.clone (float32)*",
            "+1 aten.clone (float32)*, in forward of layers.* (my_model.py:42 Block.forward)",
            "if the change is intended, accept it",
            'next: pytest * --save-baseline=accept --ddp-reason "…"',
        ]
    )
    assert len([one for one in done.stdout.lines if one.startswith("next: ")]) == 1
    assert "Traceback" not in str(done.stdout)
    assert "counted.py" not in str(done.stdout)
    assert codes(counting) == [RED, RED]


def test_a_command_has_the_options_that_made_the_case(counting):
    counting.run("--ddp-batch-sizes=8", "--save-baseline")
    counting.clones = 3

    done = counting.run("--ddp-batch-sizes=8", "-k", "ws1")

    (line,) = [one for one in done.stdout.lines if one.startswith("next: ")]
    assert " --ddp-batch-sizes=8 " in line
    assert " --save-baseline=accept " in line


def test_less_work_passes_and_the_summary_offers_the_new_bound(counting):
    counting.flops = 0  # fewer of them would be other work
    counting.store()
    counting.clones = 1

    done = counting.run()

    done.assert_outcomes(passed=2)
    done.stdout.fnmatch_lines(["2 cases of less work: more work than now is red only from*"])
    assert done.stdout.lines[-1].endswith('--save-baseline=accept --ddp-reason "…"')
    assert codes(counting) == [GREEN, GREEN]


def test_nothing_stored_is_skipped_with_the_command_and_undecided_if_strict(counting):
    done = counting.run("-rs")

    done.assert_outcomes(skipped=2)
    done.stdout.fnmatch_lines(
        [
            f"*{ONE}: NO_BASELINE: no counts of this case are stored",
            "store what has no counts yet",
            "next: pytest * --save-baseline",
        ]
    )
    last = done.stdout.lines[-1]
    assert last.startswith("next: pytest ")
    assert last.endswith(" --save-baseline")
    assert "::" not in last
    assert codes(counting) == [GREEN, ExitCode.UNDECIDED]


def test_another_torch_is_skipped_and_undecided_if_strict(counting):
    counting.store()
    counting.counter.torch = "2.14.0"

    done = counting.run("-rs")

    done.assert_outcomes(skipped=2)
    done.stdout.fnmatch_lines(["*INCOMPARABLE: no counts of torch 2.14 are stored*"])
    assert codes(counting) == [GREEN, ExitCode.UNDECIDED]


def test_a_session_that_stores_states_it_and_is_green_if_strict(counting):
    done = counting.run("--save-baseline", "--ddp-strict")

    file = counting.path / "baselines" / "work" / "2.13" / "tiny.json"
    assert done.ret == GREEN
    done.assert_outcomes(skipped=2)
    assert f"stored in {file}: 2 cases" in " ".join(str(done.stdout).split())
    assert done.stdout.lines[-1] == "next: git add baselines/work/2.13/tiny.json"


def test_what_is_accepted_is_red_no_more(counting):
    counting.store()
    counting.clones = 3

    accepted = counting.run(
        "--save-baseline=accept", "--ddp-reason", "see #12", "--ddp-strict", "-rs"
    )

    assert accepted.ret == GREEN
    accepted.stdout.fnmatch_lines(["*REGRESSION: the step does more work*", "stored in *tiny.json"])
    assert codes(counting) == [GREEN, GREEN]


def test_accepting_needs_a_reason(counting):
    assert counting.run("--save-baseline=accept").ret == pytest.ExitCode.USAGE_ERROR


def test_a_step_that_cannot_be_counted_fails_with_the_frames_of_the_user(counting):
    frames = 'File "my_model.py", line 3, in build\n    1 / 0'
    counting.answer = lambda request: make_failure(
        request.case, kind="exception", detail="ZeroDivisionError", user_frames=frames
    )

    done = counting.run()

    done.assert_outcomes(failed=2)
    done.stdout.fnmatch_lines(["*ZeroDivisionError*", 'File "my_model.py", line 3, in build'])
    assert "Traceback" not in str(done.stdout)
    assert codes(counting) == [RED, RED]


def test_a_script_that_needs_a_gpu_is_skipped_with_its_reason(counting):
    counting.answer = lambda request: make_failure(
        request.case, kind="needs_gpu", detail="train.py uses CUDA (train.py:12)"
    )

    done = counting.run("-rs")

    done.assert_outcomes(skipped=2)
    done.stdout.fnmatch_lines(["*train.py uses CUDA (train.py:12)"])
    assert codes(counting) == [GREEN, ExitCode.UNDECIDED]


def test_ranks_that_cannot_be_started_are_undecided(counting):
    def refuse(request):
        raise LaunchError("no process can be started")

    counting.answer = refuse

    assert codes(counting) == [RED, ExitCode.UNDECIDED]
    assert "no process can be started" in str(counting.run().stdout)


def test_red_precedes_undecided(counting):
    counting.run("--save-baseline", "-k", "ws2")
    counting.clones = 3

    assert codes(counting) == [RED, RED]


def test_a_missing_package_is_skipped_with_the_command(counting, monkeypatch):
    monkeypatch.setattr("ddp_perf.system.capacity.PACKAGES", {"mlp": "no_such_package"})

    done = counting.run("-rs")

    done.assert_outcomes(skipped=2)
    done.stdout.fnmatch_lines(["*mlp needs no_such_package: pip install transformers"])
    done.stdout.fnmatch_lines(["ddp: nothing was counted: 2 items, *"])
    assert codes(counting) == [GREEN, ExitCode.UNDECIDED]


def test_a_broken_file_of_counts_is_a_usage_error_of_one_line(counting):
    counting.store()
    (counting.path / "baselines" / "work" / "2.13" / "tiny.json").write_text("{")

    done = counting.run()

    assert done.ret == pytest.ExitCode.USAGE_ERROR
    assert "tiny.json: is cut short" in str(done.stderr)


def test_the_junit_file_has_the_totals(counting):
    counting.run("--junitxml=junit.xml")

    (case, _) = ET.parse(counting.path / "junit.xml").iter("testcase")
    found = {one.get("name"): one.get("value") for one in case.iter("property")}
    assert found["operations"] == "2"
    assert found["flops"] == "5"


def test_a_test_of_the_users_own_has_the_counts(counting):
    (counting.path / "tests" / "test_own.py").write_text(
        "import pytest\n\n\n@pytest.mark.work\n"
        "def test_own(ddp_counted):\n"
        "    assert {one.name for one in ddp_counted.work.operations} == {'aten.clone'}\n"
        "    assert ddp_counted.verdict.outcome.value == 'NO_BASELINE'\n"
    )

    counting.run("tests/test_own.py").assert_outcomes(passed=2)
    assert len(counting.counter.asked) == 3  # one rank, and the first and the last of two


# ---- the session ----


def test_counting_measures_nothing_and_ends_its_processes(counting):
    counting.run()

    assert counting.counter.closed
    assert counting.project.launchers == []


def test_a_suite_of_the_gpu_tier_is_counted_without_a_gpu(counting):
    counting.project.suite("tiny", TINY.replace("tier: cpu", "tier: gpu"))

    counting.run("-m", "work").assert_outcomes(skipped=2)
    assert len(counting.counter.asked) == 3


def test_the_tiers_select_what_is_measured_and_no_count(counting):
    counting.run("-m", "cpu", "tests/test_work.py").assert_outcomes(deselected=2)


def test_a_report_has_its_own_page_and_leaves_that_of_measurements_alone(counting):
    counting.store()
    counting.clones = 3
    (counting.path / "out").mkdir()
    (counting.path / "out" / "index.html").write_text("of last night")

    done = counting.run("--ddp-report=out")

    done.stdout.fnmatch_lines(["report: out/work.html"])
    assert (counting.path / "out" / "index.html").read_text() == "of last night"
    report = json.loads((counting.path / "out" / "work.json").read_text("utf-8"))
    assert [row["verdict"] for row in report["rows"]] == ["REGRESSION"] * 2


def test_a_github_job_gets_the_line_and_a_summary(counting, monkeypatch):
    counting.store()
    counting.clones = 3
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(counting.path / "step.md"))

    done = counting.run("--ddp-report=out")

    done.stdout.fnmatch_lines(["::error file=my_model.py,line=42,title=*REGRESSION*"])
    assert "REGRESSION" in (counting.path / "step.md").read_text("utf-8")


def test_a_report_that_cannot_be_written_fails_the_session(counting):
    counting.store()
    (counting.path / "out" / "work.html").mkdir(parents=True)

    assert codes(counting, "--ddp-report=out") == [RED, 3]


def test_without_a_suite_file_the_command_that_writes_one_is_named(counting):
    (counting.path / "bench_configs" / "tiny.yaml").unlink()

    done = counting.run()

    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(["*there is no suite file in *: *run ddp-perf init, *"])


def test_work_tests_that_nothing_selects_are_named_with_the_option(counting):
    done = counting.run("-m", "not work and not perf", "tests/test_work.py")

    assert done.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    done.stdout.fnmatch_lines(["ddp: 2 work tests deselected; to count: -m work"])


def test_both_kinds_of_tests_run_in_one_session(counting):
    counting.store()
    done = counting.run("-m", "cpu or work", "-k", "structure or test_work", "--save-baseline")

    done.assert_outcomes(passed=2, skipped=2, deselected=11)
    done.stdout.fnmatch_lines(["*work of tiny*", "*ws2*PASS*"])


def test_beside_a_duel_the_command_that_stores_counts_is_one_that_works(counting):
    done = counting.run("--ddp-against=env:A=1", "--ddp-budget=60s")

    pytest_, *arguments = shlex.split(done.stdout.lines[-1].removeprefix("next: "))
    assert pytest_ == "pytest"
    counting.project.run(*arguments).assert_outcomes(skipped=2)
    counting.run().assert_outcomes(passed=2)
