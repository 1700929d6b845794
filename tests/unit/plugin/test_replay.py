"""``--ddp-launcher replay:FILE``: a session of a results file, on a machine that cannot run it."""

from __future__ import annotations

import json

import msgspec
import pytest

from ddp_perf.errors import ExitCode
from ddp_perf.session.result import read_results, write_results
from tests.builders import make_capacity, make_failure, make_gpu_machine
from tests.projects import TINY

FILE = "recorded.json"
REPLAY = ("--ddp-launcher", f"replay:{FILE}")
ON_GPUS = TINY.replace("tier: cpu", "tier: gpu").replace("launches: 2", "launches: 3")


@pytest.fixture
def recorded(project):
    """A project with a stored session of two H200s and a recorded one in which both cases are
    30 % slower, on a machine without GPUs.
    """
    project.suite("tiny", ON_GPUS)
    project.capacity = make_capacity(make_gpu_machine(*["NVIDIA H200"] * 2, nvlinks=18))
    project.run("-m", "gpu", "--save-baseline=append")
    project.repeat_stored(6, tier="gpu", ended=1)
    project.answer = project.steps_of(0.013, 0.0156)
    project.run("-m", "gpu", f"--ddp-json={FILE}")
    project.capacity = make_capacity(cores=1)
    project.launchers.clear()
    return project


def test_it_is_judged_as_on_its_machine_and_launches_nothing(recorded):
    done = recorded.run("-m", "gpu", *REPLAY)

    assert done.ret == pytest.ExitCode.TESTS_FAILED
    done.stdout.fnmatch_lines(
        [
            "ddp: tiny: replayed from recorded.json; measured on * (NVIDIA H200) on *",
            "*REGRESSION: step time of mlp-ddp-fp32-ws2-b16: *",
        ]
    )
    assert not any(launcher.requests for launcher in recorded.launchers)


def test_its_findings_are_those_of_its_session(recorded):
    recorded.run("-m", "gpu", *REPLAY, "--ddp-json=again.json")

    (before,) = read_results(recorded.path / FILE).suites
    (after,) = read_results(recorded.path / "again.json").suites
    assert after.findings == before.findings
    assert (after.date, after.environment) == (before.date, before.environment)
    assert after.measurements == before.measurements


def test_the_tolerances_and_targets_are_those_of_today(recorded):
    recorded.suite("tiny", ON_GPUS + "tolerances: {step_time: 0.5}\n")

    done = recorded.run("-m", "gpu", "-k", "step_time", *REPLAY)

    assert done.ret == pytest.ExitCode.OK


def test_tests_of_the_user_see_the_recorded_figures(recorded):
    (recorded.path / "tests" / "test_own.py").write_text(
        "def test_p95(ddp_measured):\n    assert ddp_measured.figures.p95_step_s < 0.011\n"
    )

    done = recorded.run("-m", "gpu", "tests/test_own.py", *REPLAY)

    done.assert_outcomes(failed=2)
    done.stdout.fnmatch_lines(["E * assert 0.013* < 0.011"])


def test_later_sessions_do_not_judge_it(recorded):
    """It may be stored itself, and would be the reason why it is not slower."""
    (session,) = read_results(recorded.path / FILE).suites
    recorded.capacity = make_capacity(make_gpu_machine(*["NVIDIA H200"] * 2, nvlinks=18))
    recorded.run("-m", "gpu", "--save-baseline=accept", "--ddp-reason", "meant")

    recorded.run("-m", "gpu", *REPLAY, "--ddp-json=again.json")

    (again,) = read_results(recorded.path / "again.json").suites
    for case_id in session.measurements:
        assert again.finding(case_id, "step_time") == session.finding(case_id, "step_time")


def test_a_case_that_was_not_recorded_is_skipped_with_the_reason(recorded):
    recorded.suite("tiny", ON_GPUS.replace("[16]", "[16, 32]"))

    done = recorded.run("-m", "gpu", "-rs", "-k", "step_time and b32", *REPLAY)

    assert done.parseoutcomes().keys() == {"skipped", "deselected"}
    assert f"{FILE} has no launch of it" in done.stdout.str()
    done.stdout.fnmatch_lines(["ddp: nothing was measured: *"])


def test_a_strict_session_fails_a_case_that_was_not_recorded(recorded):
    recorded.suite("tiny", ON_GPUS.replace("[16]", "[16, 32]"))

    done = recorded.run("-m", "gpu", "-k", "step_time and b32", "--ddp-strict", *REPLAY)

    assert done.ret == ExitCode.UNDECIDED


def test_a_case_of_other_work_is_skipped_with_what_differs(recorded):
    recorded.suite("tiny", ON_GPUS.replace("hidden_dim: 64", "hidden_dim: 32"))

    done = recorded.run("-m", "gpu", "-rs", "-k", "step_time", *REPLAY)

    assert done.parseoutcomes().keys() == {"skipped", "deselected"}
    assert f"{FILE} has launches of other work: model.hidden_dim 64 → 32" in done.stdout.str()


def rewrite(project, *, complete=True, **changes):
    """Change the recorded measurement of each case."""
    file = read_results(project.path / FILE)
    (suite,) = file.suites
    measurements = {
        case_id: msgspec.structs.replace(measured, **changes)
        for case_id, measured in suite.measurements.items()
    }
    summaries = suite.summaries if "launches" not in changes else {}
    suite = msgspec.structs.replace(suite, measurements=measurements, summaries=summaries)
    write_results(project.path / FILE, [suite], complete=complete)


def test_an_unfinished_session_stays_one(recorded):
    rewrite(recorded, complete=False)

    done = recorded.run("-m", "gpu", *REPLAY, "--ddp-json=again.json")

    done.stdout.fnmatch_lines(["ddp: tiny: replayed from *; its session did not end"])
    assert not read_results(recorded.path / "again.json").complete


def test_a_file_whose_session_was_ended_before_any_launch_is_refused(recorded):
    rewrite(recorded, complete=False, launches=())

    done = recorded.run("-m", "gpu", *REPLAY)

    assert done.ret == pytest.ExitCode.USAGE_ERROR
    assert "it has no launch" in done.stderr.str()


def test_launches_are_judged_by_the_schedule_that_they_had(recorded):
    recorded.suite("tiny", ON_GPUS.replace("steps: 8", "steps: 90"))

    recorded.run("-m", "gpu", *REPLAY, "--ddp-json=again.json")

    (before,) = read_results(recorded.path / FILE).suites
    (after,) = read_results(recorded.path / "again.json").suites
    assert after.findings == before.findings


def test_a_suite_of_a_cluster_is_replayed_without_the_cluster(recorded):
    recorded.suite("tiny", ON_GPUS + "launcher: kubernetes\n")

    done = recorded.run("-m", "gpu", "-k", "structure", *REPLAY)

    done.assert_outcomes(passed=2, deselected=9)


def test_a_launch_that_failed_is_red_again(project):
    project.answer = lambda request: make_failure(request.case, request.round)
    project.run(f"--ddp-json={FILE}")

    done = project.run("-k", "step_time", *REPLAY)

    assert done.ret == pytest.ExitCode.TESTS_FAILED
    assert "rank 1: exited with code 3" in done.stdout.str()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--save-baseline"], "a replay stores nothing; ddp-perf judge FILE --append does"),
        (["--ddp-history=sqlite:///h.sqlite"], "ddp-perf history import FILE adds it"),
        (["--ddp-settle=90s"], "a replay launches nothing; leave one of them out"),
        (["--ddp-inject=compute:5%"], "a replay launches nothing"),
        (["--ddp-profile"], "a replay launches nothing"),
        (["--ddp-steps=20"], "a replay launches nothing"),
        (["--ddp-rotate"], "a recorded night has its own cases"),
        (["--ddp-against=HEAD"], "a duel launches by forkserver; leave --ddp-launcher out"),
    ],
)
def test_what_needs_launches_or_would_count_twice_is_refused(project, arguments, says):
    done = project.run(*REPLAY, *arguments)

    assert done.ret == pytest.ExitCode.USAGE_ERROR
    assert says in done.stderr.str()


@pytest.mark.parametrize("option", [f"--ddp-json=./{FILE}", "--ddp-report=."])
def test_it_does_not_overwrite_what_it_replays(recorded, option):
    (recorded.path / FILE).rename(recorded.path / "results.json")
    (recorded.path / FILE).symlink_to("results.json")
    before = (recorded.path / "results.json").read_bytes()

    done = recorded.run("-m", "gpu", *REPLAY, option)

    assert done.ret == pytest.ExitCode.USAGE_ERROR
    assert "name another --ddp-json or --ddp-report" in done.stderr.str()
    assert (recorded.path / "results.json").read_bytes() == before


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "recorded.json: cannot be read: No such file or directory"),
        ("{}", "recorded.json"),
        (json.dumps({"schema_version": 1, "complete": True, "suites": []}), "it has no launch"),
    ],
)
def test_a_file_that_cannot_be_replayed_is_a_usage_error(project, text, says):
    if text is not None:
        (project.path / FILE).write_text(text)

    done = project.run(*REPLAY)

    assert done.ret == pytest.ExitCode.USAGE_ERROR
    assert says in done.stderr.str()
    assert "Traceback" not in done.stderr.str()


@pytest.mark.parametrize("text", ["torchrunn", "replay:", "replay"])
def test_an_unknown_launcher_is_refused_with_all_that_there_are(project, text):
    done = project.run("--ddp-launcher", text)

    assert done.ret == pytest.ExitCode.USAGE_ERROR
    assert (
        f"{text!r} is none of forkserver, ssh, slurm, kubernetes and replay:FILE"
        in done.stderr.str()
    )
