"""The exit code of a strict session tells why it is not green; that of others is pytest's."""

from __future__ import annotations

import os
import shutil
import signal

import pytest

from ddp_perf.baselines.save import Saving
from ddp_perf.baselines.store import BaselineStore
from ddp_perf.core.launch import RankConditions
from ddp_perf.errors import ExitCode, LeaseError
from ddp_perf.session.judge_results import promote
from ddp_perf.session.result import read_results
from tests.builders import make_failure, make_launch

STEP = ("-k", "step_time and ws1")
CTRL_C, SIGTERM = 130, 143


def noisy(request):
    return make_launch(request.case, request.round, conditions=RankConditions(foreign=0.5))


def failing(request):
    return make_failure(request.case, request.round)


def stopped(request):
    raise KeyboardInterrupt


def terminated(request):
    os.kill(os.getpid(), signal.SIGTERM)


def in_use(request):
    raise LeaseError("this machine is in use")


def codes(project, *arguments):
    """Return the exit codes of the same session, as it is and strict."""
    return [
        project.run(*arguments, *strict, no_reraise_ctrlc=True).ret
        for strict in ((), ("--ddp-strict",))
    ]


def test_a_green_session(project):
    project.store()

    assert codes(project, *STEP) == [0, 0]


def test_a_red_session_that_ends_at_its_first_failure_is_red(project):
    project.store()
    project.answer = project.steps_of(0.02, 0.024)

    stepwise = ("-p", "cacheprovider", "-p", "stepwise", "--stepwise")
    assert codes(project, *STEP, *stepwise) == [2, 1]


@pytest.mark.parametrize("how", ["slower", "failed"])
def test_training_that_got_slower_or_failed_is_red(project, how):
    project.store()
    project.answer = project.steps_of(0.02, 0.024) if how == "slower" else failing

    assert codes(project, *STEP) == [1, 1]


def test_a_machine_that_is_too_noisy_is_undecided(project):
    project.store()
    project.answer = noisy

    assert codes(project, *STEP) == [0, ExitCode.UNDECIDED]


def test_a_case_that_could_not_be_stored_is_undecided(project):
    project.answer = noisy

    assert codes(project, *STEP, "--save-baseline") == [0, ExitCode.UNDECIDED]
    assert codes(project, *STEP) == [1, ExitCode.UNDECIDED]


def test_a_strict_session_appends_and_begins_no_level(project):
    """A file that was lost or renamed looks like one that never was."""
    path = project.store()
    lost = path.rename(path.with_name("cpu-renamed-2c-host.json"))
    lost.write_text(lost.read_text().replace(path.stem, lost.stem))

    strict = (*STEP, "--ddp-strict", "--save-baseline=append", "--ddp-report=report")
    nights = [project.run(*strict) for _ in range(2)]

    assert [night.ret for night in nights] == [ExitCode.UNDECIDED, ExitCode.UNDECIDED]
    assert not path.exists()
    shown = " ".join(str(nights[-1].stdout).split())
    assert f"baselines/{path.name} has no session of the case" in shown
    assert f"baselines/{lost.name} has 6 sessions of it; a strict session appends" in shown
    assert project.stored() == {}
    why, command = nights[-1].outlines[-2:]
    assert why.startswith("restore ")
    assert command.startswith("next: pytest ")
    assert command.endswith(" --save-baseline")
    assert '"NO_BASELINE"' in (project.path / "report" / "results.json").read_text()

    promoted = promote(
        read_results(project.path / "report" / "results.json").suites[0],
        BaselineStore(path.parent),
        Saving(mode="append"),
    )
    assert promoted.saved
    assert project.run(*strict).ret == 0


def test_an_announced_first_session_is_green_and_the_next_one_is_appended(project):
    first = project.run(*STEP, "--ddp-strict", "--save-baseline")
    second = project.run(*STEP, "--ddp-strict", "--save-baseline=append")

    assert (first.ret, second.ret) == (0, 0)
    assert [len(case.sessions) for case in project.stored().values()] == [2]


def test_a_machine_that_another_session_has_is_undecided(project):
    project.store()
    project.answer = in_use

    assert codes(project, *STEP) == [1, ExitCode.UNDECIDED]


def test_a_machine_that_is_too_small_is_undecided(project):
    project.capacity = type(project.capacity)(machine=project.capacity.machine, cores=0)

    assert codes(project, *STEP) == [0, ExitCode.UNDECIDED]


def test_red_precedes_undecided(project):
    """The step time of one rank got slower, and that of two ranks cannot be decided."""
    project.store()
    slow = project.steps_of(0.02, 0.024)
    project.answer = lambda asked: (slow if asked.case.world_size == 1 else noisy)(asked)

    assert codes(project, "-k", "step_time") == [1, 1]


def test_a_failed_test_of_the_user_is_red_beside_an_undecided_one(project):
    project.answer = in_use
    (project.path / "test_own.py").write_text(
        "import pytest\n@pytest.mark.cpu\ndef test_own_step_time_ws1(): assert False\n"
    )

    assert codes(project, *STEP, "tests", "test_own.py") == [1, 1]


def unwritable(project, answer):
    """Return launches while which the report's page becomes a directory."""
    page = project.path / "report" / "index.html"

    def answered(request):
        if not page.is_dir():
            page.unlink(missing_ok=True)
            page.mkdir(parents=True)
        return answer(request)

    return answered


def of_reports(project):
    """Return the exit codes as `codes` does: a report in a new directory for each session."""
    found = []
    for strict in ((), ("--ddp-strict",)):
        shutil.rmtree(project.path / "report", ignore_errors=True)
        found.append(project.run(*STEP, "--ddp-report=report", *strict).ret)
    return found


@pytest.mark.parametrize(("answer", "code"), [(noisy, 3), (failing, 1)])
def test_an_output_that_cannot_be_written_precedes_undecided_alone(project, answer, code):
    project.store()
    project.answer = unwritable(project, answer)

    assert of_reports(project) == [1, code]


def test_an_output_that_cannot_be_written_is_not_green(project):
    project.store()
    project.answer = unwritable(project, project.answer)

    assert of_reports(project) == [1, 3]


@pytest.mark.parametrize(("answer", "code"), [(stopped, CTRL_C), (terminated, SIGTERM)])
def test_a_session_that_is_ended_has_the_code_of_the_signal(project, answer, code):
    project.answer = answer

    assert codes(project, *STEP) == [2, code]


def test_a_test_file_that_cannot_be_imported_is_usage(project):
    (project.path / "test_own.py").write_text("import no_such_module\n")

    assert codes(project, *STEP, "tests", "test_own.py") == [2, 4]


def test_no_selected_case_and_a_wrong_argument_keep_their_codes(project):
    assert codes(project, "-k", "no_such_case") == [5, 5]
    assert codes(project, "--ddp-steps=0") == [4, 4]


def test_the_text_of_an_undecided_test_has_no_traceback(project, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    project.answer = in_use

    shown = str(project.run(*STEP, "--ddp-strict").stdout)

    assert " - Undecided: this machine is in use" in shown
    assert "Traceback" not in shown
    assert "fail_undecided" not in shown


def test_a_file_of_another_plugin_that_cannot_be_written_loses_no_file_of_ours(project):
    project.store()
    (project.path / "junit.xml").symlink_to("no_such_directory/junit.xml")

    done = project.run(*STEP, "--ddp-strict", "--ddp-report=report", "--junitxml=junit.xml")

    assert done.ret == 3
    assert "junit.xml cannot be written: No such file or directory" in str(done.stdout)
    assert (project.path / "report" / "index.html").exists()
