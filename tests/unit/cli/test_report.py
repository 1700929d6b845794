"""``ddp-perf report``: its files, and errors in one line."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from ddp_perf.cli.app import app
from ddp_perf.session.result import write_results
from tests.builders import make_hostile_result
from tests.reports import make_suite_result


def report(*arguments):
    return CliRunner().invoke(app, ["report", *map(str, arguments)])


@pytest.fixture
def results(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "results.json"
    write_results(path, [make_suite_result()], complete=True)
    return path


def test_report_prints_the_verdict_and_names_the_page(results, tmp_path):
    done = report(results, "-o", "out")

    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "RED: 2 of 4 cases red, 1 undecided, 1 passed",
        "report: out/index.html",
    ]
    assert (tmp_path / "out" / "index.html").exists()


def test_several_files_are_one_report_of_all_their_suites(results, tmp_path):
    other = tmp_path / "other.json"
    write_results(other, [make_suite_result(suite="imdb")], complete=False)

    done = report(results, other, "-o", "out")

    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.startswith("RED: 4 of 8 cases red, 2 undecided, 2 passed; the session did")
    plots = {path.name for path in (tmp_path / "out").glob("*_throughput.png")}
    assert plots == {"imdb_throughput.png", "quick_throughput.png"}


def test_two_sessions_of_a_suite_are_no_report(results, tmp_path):
    again = tmp_path / "again.json"
    again.write_bytes(results.read_bytes())

    done = report(results, again, "-o", "out")

    assert done.exit_code == 4
    assert done.stderr == (
        f"ddp-perf: {again}: quick is in {results}, too, and a report has one session of a suite;"
        " compare two with ddp-perf compare\n"
    )
    assert not (tmp_path / "out").exists()


def test_a_results_file_with_markup_in_its_names_is_written_harmlessly(results):
    write_results(results, [make_hostile_result()], complete=True)

    assert report(results).exit_code == 0
    assert "<script>alert" not in (results.parent / "artifacts/report/index.html").read_text(
        "utf-8"
    )


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda text: text[: len(text) // 2], "is cut short, or is not JSON"),
        (lambda text: text.replace('"schema_version":1', '"schema_version":9'), "is 9, this"),
        (lambda text: text.replace('"control_s":0.002', '"control_s":NaN'), "control_s"),
    ],
    ids=["truncated", "version", "NaN"],
)
def test_an_invalid_results_file_is_refused_in_one_line(results, change, says):
    results.write_text(change(results.read_text()))

    done = report(results, "-o", "out")

    assert done.exit_code == 4
    assert done.stderr.startswith(f"ddp-perf: {results}: ")
    assert says in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (results.parent / "out").exists()


def test_a_directory_that_cannot_be_made_is_refused_in_one_line(results):
    (results.parent / "out").write_text("a file")

    done = report(results, "-o", "out")

    assert done.exit_code == 4
    assert done.stderr == "ddp-perf: out: cannot be written: File exists\n"
