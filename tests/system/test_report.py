"""The report of a session of real launches, and the programs that read its files."""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
import shutil
import subprocess

import pytest

from ddp_perf.core.verdict import Outcome
from ddp_perf.plugin.items import WORK
from ddp_perf.report.directory import write_report
from ddp_perf.report.rows import ruled_out_lines
from ddp_perf.report.session_report import PAGE
from ddp_perf.session.result import read_results, write_results
from tests.builders import make_hostile_result
from tests.projects import TINY, make_project
from tests.reports import make_source, make_suite_result

# They change what is done with the figures, not what is measured.
OUTCOME = {
    *("--ddp-json", "--ddp-report", "--ddp-strict", "--ddp-expect-devices", "--ddp-profile"),
    *("--ddp-history", "--ddp-notify", "--ddp-false-alarm-rate", "--ddp-budget"),
    *("--ddp-settle", "--ddp-rotate", "--ddp-audit", "--ddp-reason"),
    *("--ddp-against", "--ddp-touched", "--ddp-no-user-code"),
}


@pytest.fixture
def project(pytester, monkeypatch):
    """A project with the suite's own tests and one small suite file, outside any GitHub job."""
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"):
        monkeypatch.delenv(name, raising=False)
    return make_project(pytester, monkeypatch, addopts='-m "not perf"', tiny=TINY)


def run(*command, cwd=None):
    return subprocess.run(
        [str(part) for part in command], cwd=cwd, capture_output=True, text=True, timeout=120
    )


@pytest.mark.usefixtures("played_ranks")
def test_a_session_ends_by_naming_its_report_whose_commands_find_their_cases(project):
    done = project.runpytest(
        *("-m", "perf", "--save-baseline", "--ddp-report", "out"),
        *("--ddp-batch-sizes", "8", "--ddp-env", "MKL_DYNAMIC=a b"),
    )
    done.stdout.fnmatch_lines([f"report: out/{PAGE}"])

    (suite,) = json.loads((project.path / "out" / "results.json").read_text())["suites"]
    assert suite["commands"].keys() == suite["measurements"].keys()
    assert suite["save_mode"] == "missing"
    for case_id, command in suite["commands"].items():
        arguments = shlex.split(command)[1:]
        found = project.runpytest(*arguments, "--collect-only", "-q").stdout.str()
        assert f"test_step_time[{case_id}]" in found
        assert "1 test collected" in found


@pytest.mark.slow
def test_the_second_session_decides_memory_and_structure_and_states_what_it_rules_out(
    pytester, monkeypatch
):
    """The tolerance of the step time is wide: on a busy machine no case becomes red by chance."""
    tolerances = "tolerances: {step_time: 0.9, tail: null, efficiency: null, peak_memory: 0.2}"
    project = make_project(pytester, monkeypatch, addopts="-m perf", tiny=TINY + tolerances)
    session = ("--save-baseline=missing", "--ddp-report", "out")

    first = project.runpytest(*session).stdout.str()
    second = project.runpytest(*session).stdout.str()

    assert "step time: " not in first
    assert "2 cases: stored in " in " ".join(first.split())
    assert "; the structure is stored in " in " ".join(first.split())
    results = read_results(project.path / "out" / "results.json")
    (suite,) = results.suites
    decided = [found for found in suite.findings if found.metric in ("peak_memory", "structure")]
    assert [found.verdict.outcome for found in decided] == [Outcome.PASS] * 4
    lines = ruled_out_lines(suite)
    what = r"step time: ((no slow-down above|not slower) .*in [12] of|no verdict on) 2 cases"
    assert re.match(what, lines[0])
    text, page = (
        (project.path / "out" / name).read_text(encoding="utf-8") for name in ("summary.md", PAGE)
    )
    for shown in (second, text, page):
        assert all(line in " ".join(shown.split()) for line in lines)


@pytest.mark.usefixtures("played_ranks")
def test_a_report_that_cannot_be_written_fails_the_session_and_keeps_the_results(
    project, monkeypatch
):
    def full(path, data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("ddp_perf.system.files.replace_file", full)
    done = project.runpytest(
        *("-q", "-m", "perf", "-k", "structure", "--save-baseline", "--ddp-report", "out")
    )

    assert done.ret == pytest.ExitCode.TESTS_FAILED
    assert "verdict" in done.stdout.str()
    assert "ms a step" not in done.stdout.str()  # where the time goes: not with -q
    done.stdout.fnmatch_lines(
        [
            f"--ddp-report: out/{PAGE}: cannot be written: No space left on device; the"
            " measurements are in out/results.json; write the report with: ddp-perf report"
            " out/results.json"
        ]
    )
    assert json.loads((project.path / "out" / "results.json").read_text())["complete"]


@pytest.mark.usefixtures("played_ranks")
def test_an_interrupt_while_the_report_is_written_is_no_traceback_and_keeps_the_results(
    project, monkeypatch
):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("ddp_perf.plugin.outputs.ReportWriter.write", interrupted)
    done = project.runpytest(
        *("-q", "-m", "perf", "-k", "structure", "--save-baseline", "--ddp-json", "results.json")
    )

    assert done.ret == pytest.ExitCode.INTERRUPTED
    assert "verdict" in done.stdout.str()
    expected = "Ctrl-C ended the session before all its files were written"
    assert expected in done.stdout.str().splitlines()
    assert "Traceback" not in done.stdout.str() + done.stderr.str()
    assert json.loads((project.path / "results.json").read_text())["complete"]


def test_a_session_without_measurements_replaces_the_older_report(project):
    write_report(project.path / "out", make_source())

    project.runpytest("-m", "gpu", "--ddp-report", "out")

    page = (project.path / "out" / PAGE).read_text(encoding="utf-8")
    assert "<span>nothing was measured</span>" in page
    assert json.loads((project.path / "out" / "results.json").read_text())["suites"] == []


def test_collecting_leaves_a_report_as_it_is(project):
    write_report(project.path / "out", make_source())
    before = (project.path / "out" / PAGE).read_bytes()

    project.runpytest("-m", "perf", "--collect-only", "--ddp-report", "out")

    assert (project.path / "out" / PAGE).read_bytes() == before


@pytest.mark.parametrize(
    "broken",
    [("--ddp-history", "sqlite:///no/such/directory/h.sqlite"), ("no_such_test.py",)],
    ids=["history", "no such test"],
)
def test_a_run_that_is_refused_leaves_results_and_report_as_they_are(project, broken):
    directory = project.path / "out"
    write_report(directory, make_source())
    write_results(directory / "results.json", [make_suite_result()], complete=True)
    before = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    (project.path / "no").write_text("a file, so no directory")

    done = project.runpytest("-m", "perf", "--ddp-report", "out", *broken)

    assert done.ret == pytest.ExitCode.USAGE_ERROR
    assert {path: path.read_bytes() for path in before} == before


def test_a_report_where_a_file_is_in_the_way_is_refused_before_anything_is_launched(project):
    (project.path / "out").write_text("a file")
    done = project.runpytest("-m", "perf", "--ddp-report", "out")

    assert done.ret == pytest.ExitCode.USAGE_ERROR
    assert "--ddp-report: out: File exists" in done.stderr.str()


def test_every_option_is_listed_as_changing_the_case_or_not(project):
    """An option in neither list would be missing in a command to reproduce a case."""
    text = project.runpytest("--help").stdout.str()
    options = {word.partition("=")[0] for word in text.split() if word.startswith("--ddp-")}

    assert {option.rstrip(".,;:)") for option in options} >= {*WORK, *OUTCOME}
    assert {o for o in options if o.replace("-", "").isalpha()} <= {*WORK, *OUTCOME}


@pytest.mark.skipif(not shutil.which("pdflatex"), reason="no pdflatex (texlive-latex-base)")
@pytest.mark.parametrize(
    "result", [make_suite_result(), make_hostile_result()], ids=["usual", "hostile"]
)
def test_the_table_compiles(tmp_path, result):
    write_report(tmp_path, make_source(result))
    (tmp_path / "paper.tex").write_text(
        r"\documentclass{article}\begin{document}\input{summary_table}\end{document}"
    )

    done = run("pdflatex", "-interaction=nonstopmode", "-halt-on-error", "paper.tex", cwd=tmp_path)

    assert done.returncode == 0, done.stdout
    assert "Missing character" not in (tmp_path / "paper.log").read_text(errors="replace")
