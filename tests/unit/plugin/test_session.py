"""A pytest session: its measurements, its options and its files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ddp_perf.errors import ExitCode, LaunchError
from ddp_perf.session.gate.judge_suite import judge_suite
from ddp_perf.session.measure import suite as measured_suite
from ddp_perf.session.result import read_results
from tests.builders import make_failure, make_launch, make_probe
from tests.projects import TINY
from tests.repositories import Repository

ONE, TWO = "mlp-none-fp32-ws1-b16", "mlp-ddp-fp32-ws2-b16"
SECOND = TINY.replace("suite: tiny", "suite: second").replace("[16]", "[32]")
# Step, tail, CPU time and memory of each case, and the efficiency of two ranks.
GATED_OF_ONE, GATED_OF_TWO = 4, 5


def test_the_verdicts_of_a_session_share_its_false_alarm_rate(project):
    each = 0.01 / (GATED_OF_ONE + GATED_OF_TWO)

    project.run("-v").stdout.fnmatch_lines(
        [f"if nothing is slower, the chance of any REGRESSION is 1 % (of each {100 * each:.3g} %)"]
    )
    assert project.results()["tiny"].alpha == pytest.approx(each)


def test_all_suites_of_a_session_share_one_rate(project):
    project.suite("second", SECOND)

    suites = project.results("--ddp-false-alarm-rate=0.05")

    each = 0.05 / (2 * GATED_OF_ONE + 2 * GATED_OF_TWO)
    assert [suite.alpha for suite in suites.values()] == pytest.approx([each, each])


@pytest.mark.parametrize(
    ("arguments", "verdicts"),
    [
        (["-k", "structure and ws1"], GATED_OF_ONE),
        (["-k", "structure and ws2"], GATED_OF_ONE + GATED_OF_TWO),  # its one-rank leg as well
        (["--ddp-world-sizes=1,512"], GATED_OF_ONE),
    ],
    ids=["one case selected", "a case with its one-rank leg", "a case too large for the machine"],
)
def test_only_what_is_measured_takes_a_part_of_the_false_alarm_rate(project, arguments, verdicts):
    assert project.results(*arguments)["tiny"].alpha == pytest.approx(0.01 / verdicts)


def test_all_cases_share_the_rate_if_a_test_may_request_any_of_them(project):
    (project.path / "test_own.py").write_text(
        f"import pytest\n@pytest.mark.cpu\ndef test_own(ddp_measure):\n    ddp_measure({ONE!r})\n"
    )

    suite = project.results("test_own.py")["tiny"]

    assert suite.measurements.keys() == {ONE}
    assert suite.alpha == pytest.approx(0.01 / (GATED_OF_ONE + GATED_OF_TWO))


def test_each_suite_is_measured_once_by_one_launcher_that_is_closed(project):
    project.suite("second", SECOND)

    project.run()

    (launcher,) = project.launchers
    second = [case.replace("b16", "b32") for case in (ONE, TWO)]
    assert launcher.asked == [
        *((case, round_) for round_ in range(2) for case in second),
        *((case, round_) for round_ in range(3) for case in (ONE, TWO)),
    ]
    assert launcher.closed


def test_a_case_requested_twice_is_measured_once(project):
    (project.path / "test_own.py").write_text(
        "import pytest\n"
        "@pytest.mark.cpu\n"
        f"@pytest.mark.parametrize('case', [{ONE!r}, {TWO!r}, {TWO!r}])\n"
        "def test_own(ddp_measure, case):\n"
        "    assert ddp_measure(case).case.id == case\n"
    )

    project.run("test_own.py").assert_outcomes(passed=3)

    assert project.launchers[0].asked == [
        *((ONE, round_) for round_ in range(3)),
        *((TWO, round_) for round_ in range(3)),
    ]


def test_every_launch_gets_the_options_of_the_session(project):
    project.run("--ddp-inject=compute:20%", "--ddp-profile=2", "-k", "structure and ws1")

    *judged, profiled = project.requests()
    for request in (*judged, profiled):
        assert [injection.text for injection in request.injections] == ["compute:20%"]
        assert str(project.path) in request.import_paths
        assert request.records.startswith(str(project.path))
    assert {request.profiling for request in judged} == {None}
    assert profiled.profiling.steps == 2


def test_save_baseline_stores_the_session_with_its_mode_and_reason(project):
    project.store()
    project.run("--save-baseline=append")
    assert [len(case.sessions) for case in project.stored().values()] == [7, 7]

    project.run("--save-baseline=accept", "--ddp-reason", "wider layers")

    for case in project.stored().values():
        assert len(case.history("step_time").at_level) == 1
        assert [entry.reason for entry in case.log] == ["wider layers"]


def test_a_directory_that_cannot_store_the_session_is_refused_before_the_first_launch(
    project, monkeypatch
):
    project.store()
    access = os.access
    monkeypatch.setattr(
        os, "access", lambda path, mode: Path(path).name != "baselines" and access(path, mode)
    )

    refused = project.run("--save-baseline=append")

    assert refused.ret == pytest.ExitCode.USAGE_ERROR
    refused.stderr.fnmatch_lines(["*baselines: cannot be written, so no baseline could be stored*"])
    assert not any(launcher.asked for launcher in project.launchers)
    assert project.run("-k", "tail and ws1").ret == pytest.ExitCode.OK  # it stores nothing


def test_results_name_the_command_that_measures_each_case_again(project):
    project.suite("second", SECOND)

    suites = project.results("--ddp-steps=9")

    assert [case for suite in suites.values() for case in suite.measurements] == [
        case for suite in suites.values() for case in suite.commands
    ]
    assert suites["tiny"].commands[ONE] == (
        f"pytest -m perf 'tests/test_perf.py::test_step_time[{ONE}]' --ddp-steps=9"
    )


@pytest.mark.parametrize(("seconds", "more"), [("0", False), ("60s", True)])
def test_an_undecided_case_gets_more_launches_within_the_budget(project, seconds, more):
    project.store(spread=0.001)
    restless = (0.93, 1.08, 1.0)

    def answer(request):
        step_s = 0.010 * restless[request.round % 3]
        return make_launch(request.case, request.round, step_s=step_s)

    project.answer = answer
    project.run(f"--ddp-budget={seconds}", "-k", "ws1")

    assert (len(project.requests()) > 3) is more


@pytest.mark.parametrize(("seconds", "more"), [("0", False), ("60s", True)])
def test_a_slower_case_gets_more_launches_for_its_explanation(project, seconds, more):
    project.answer = lambda request: make_launch(request.case, request.round, probe=make_probe())
    project.run("--save-baseline")
    project.repeat_stored(6)
    project.answer = lambda request: make_launch(
        request.case, request.round, step_s=0.02, probe=make_probe()
    )

    project.run(f"--ddp-budget={seconds}", "-k", "ws1")

    assert (len(project.requests()) > 3) is more


def complete(project):
    return read_results(project.path / "results.json").complete


def test_results_are_complete_once_every_planned_case_is_judged(project):
    written = []

    def answer(request):
        if (project.path / "results.json").exists():
            written.append(complete(project))
        return make_launch(request.case, request.round)

    project.answer = answer
    project.results()

    assert complete(project)
    assert written
    assert not any(written)


def test_results_of_a_session_that_stopped_before_a_suite_are_not_complete(project):
    project.suite("second", SECOND)

    assert project.results("-x").keys() == {"second"}  # no baseline: the first test is red
    assert not complete(project)


def test_ranks_that_cannot_start_are_tried_once_and_fail_every_item(project):
    asked = []

    def answer(request):
        asked.append(request)
        raise LaunchError("the forkserver did not start")

    project.answer = answer
    result = project.run("-k", "structure or memory")

    result.assert_outcomes(errors=4, deselected=9)
    assert str(result.stdout).count("the forkserver did not start") >= 4
    assert len(asked) == 1


@pytest.mark.parametrize("where", ["launch", "judge"])
def test_an_error_of_any_kind_ends_its_suite_once_and_is_undecided(project, monkeypatch, where):
    """It would be measured again by each later test, for hours."""
    project.suite("second", SECOND)
    asked = []

    def answer(request):
        asked.append(request.case.suite)
        if where == "launch" and request.case.suite == "tiny":
            raise OSError(39, "Directory not empty", "/shared/job-7")
        return make_launch(request.case, request.round)

    def judge(measurements, summaries, context):
        if "mlp-none-fp32-ws1-b16" in measurements:
            raise RuntimeError("a defect")
        return judge_suite(measurements, summaries, context)

    project.answer = answer
    if where == "judge":
        monkeypatch.setattr(measured_suite, "judge_suite", judge)

    done = project.run("-k", "structure or memory", "--ddp-strict", "--save-baseline")

    done.assert_outcomes(errors=4, skipped=4, deselected=18)
    assert done.ret == ExitCode.UNDECIDED
    assert asked.count("tiny") == (1 if where == "launch" else 6)
    shown = str(done.stdout)
    assert "tiny could not be measured to its end: " in shown
    assert shown.count("Traceback (most recent call last)") == 1


def test_a_failed_launch_fails_only_the_tests_of_its_case(project):
    def answer(request):
        if request.case.world_size == 2:
            return make_failure(request.case, request.round)
        return make_launch(request.case, request.round)

    project.answer = answer
    result = project.run("-k", "structure", "--save-baseline")

    result.assert_outcomes(errors=1, skipped=1, deselected=11)
    result.stdout.fnmatch_lines(["*exited with code 3*"])


@pytest.mark.parametrize("tier", ["structure", "baseline"])
def test_a_broken_baseline_file_is_refused_before_any_launch(project, tier):
    path = project.store()
    if tier == "structure":
        path = project.path / "baselines" / "structure" / "tiny.json"
        path.parent.mkdir()
    path.write_text("{")

    result = project.run()

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert path.name in str(result.stderr)
    assert project.launchers == []


def test_an_injection_that_applies_to_no_selected_case_is_refused(project):
    result = project.run("--ddp-inject=straggler:1:5ms", "-k", "ws1")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "straggler:1:5ms" in str(result.stderr)
    assert project.launchers == []


def test_collection_launches_nothing(project):
    project.run("--collect-only")

    assert project.launchers == []


def test_the_history_receives_every_suite_of_the_session(project):
    url = f"sqlite:///{project.path}/history.sqlite"

    result = project.run(f"--ddp-history={url}", "-k", "structure")

    result.stdout.fnmatch_lines([f"appended to the history {url}"])


def test_a_report_is_written_if_the_session_measured_nothing(project):
    """Otherwise the report of an earlier session would be mistaken for this one."""
    project.run("--ddp-report=report")
    before = (project.path / "report" / "index.html").read_bytes()

    project.capacity = type(project.capacity)(machine=project.capacity.machine, cores=0)
    project.run("--ddp-report=report")

    assert (project.path / "report" / "index.html").read_bytes() != before
    assert read_results(project.path / "report" / "results.json").suites == ()


@pytest.mark.parametrize("option", ["--save-baseline", "--ddp-strict"])
def test_an_interrupted_session_states_how_far_it_came_and_what_is_not_stored(project, option):
    def interrupted(request):
        if len(project.requests()) > 3:
            raise KeyboardInterrupt
        return make_launch(request.case, request.round)

    project.answer = interrupted

    done = project.run("--ddp-json=results.json", option, no_reraise_ctrlc=True)

    assert done.ret == (130 if option == "--ddp-strict" else pytest.ExitCode.INTERRUPTED)
    text = "ddp: interrupted after 3 of 6 launches of tiny: tiny is not judged"
    if option == "--save-baseline":
        text += "; the first session of 1 case is stored"
    done.stdout.fnmatch_lines([f"{text}; run it again", "results: results.json"])
    assert project.stored().keys() == ({ONE} if option == "--save-baseline" else set())


def test_the_same_command_goes_on_from_what_an_interrupted_session_measured(project):
    def interrupted(request):
        if len(project.requests()) > 3:
            raise KeyboardInterrupt
        return make_launch(request.case, request.round)

    repository = Repository(project.path)
    repository.write({".gitignore": "artifacts/\nbaselines/\n"})
    repository.git("add", "--all")
    repository.git("commit", "--quiet", "--message", "tests")
    project.run("--save-baseline")
    project.answer = interrupted
    project.run("--save-baseline=append", no_reraise_ctrlc=True)
    project.answer = lambda request: make_launch(request.case, request.round)
    went_on = project.run("--save-baseline=append")
    went_on.stdout.fnmatch_lines(["*goes on after 3 launches of a session that was ended*"])
    assert len(project.requests()) == 3
    assert len(project.stored()[ONE].sessions) == 2

    project.run("--save-baseline=append")

    assert len(project.requests()) == 6


def test_a_session_that_is_interrupted_while_it_explains_was_stored(project):
    project.answer = lambda request: make_launch(request.case, request.round, probe=make_probe())
    project.run("--save-baseline")
    project.repeat_stored(6)

    def interrupted(request):
        if len(project.requests()) > 3:
            raise KeyboardInterrupt
        return make_launch(request.case, request.round, step_s=0.02, probe=make_probe())

    project.answer = interrupted

    done = project.run("--save-baseline=append", "-k", "ws1", no_reraise_ctrlc=True)

    (line,) = [line for line in done.outlines if line.startswith("ddp: interrupted")]
    assert " is not " not in line
    assert len(project.stored()[ONE].sessions) == 7


def test_the_session_names_its_results_file_at_its_end(project):
    project.run("--ddp-report=report").stdout.fnmatch_lines(
        ["report: report/index.html", "results: report/results.json"]
    )
    assert "results: " not in str(project.run().stdout)


def test_a_strict_session_states_what_it_gates_while_its_baseline_forms(project):
    def strict_lines(*arguments, mode="append"):
        lines = project.run(f"--save-baseline={mode}", *arguments).outlines
        return " ".join(line.strip() for line in lines).partition("--ddp-strict: ")[2]

    first = strict_lines("--ddp-strict", mode="missing")
    second = strict_lines("--ddp-strict")

    times = "in step time, tail (mean step ÷ its level), CPU time of a step,"
    assert first.startswith("this first session gates nothing; the next one gates structure, loss")
    assert f"as well, and {times} peak memory of a rank, " in first
    assert ", only a large slow-down fails until 3 sessions are stored" in first
    assert second.startswith(f"this session gates peak memory of a rank, structure, loss; {times} ")
    assert ", only a large slow-down fails until 3 sessions are stored" in second
    assert strict_lines() == ""
    project.store()
    assert strict_lines("--ddp-strict") == ""


def test_a_session_of_several_suites_states_its_length_before_the_first_launch(project):
    project.suite("second", SECOND)

    shown = str(project.run().stdout)

    assert shown.index(" launches of 2 suites, ") < shown.index("ddp: second: ")
