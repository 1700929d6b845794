"""``ddp-perf history``: output, import, and errors in one line."""

from __future__ import annotations

import contextlib
import json

import pytest
from typer.testing import CliRunner

from ddp_perf.cli.app import app
from ddp_perf.history.store import HistoryStore
from ddp_perf.session.result import write_results
from tests.audits import make_audit
from tests.builders import make_case, make_measurement, make_result
from tests.recorded_sessions import make_recorded_session, stepped

CASE = make_case()


def run(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


@pytest.fixture
def append(here):
    """``append(values)`` writes a session for each to the default history."""

    def write(values, case=CASE, **environment):
        sessions = [
            make_recorded_session(case, n, value, **environment) for n, value in enumerate(values)
        ]
        with contextlib.closing(HistoryStore("sqlite:///artifacts/history.sqlite")) as store:
            store.append(sessions)

    return write


@pytest.fixture
def results(here):
    """A results file of one session."""
    path = here / "results.json"
    write_results(path, [make_result([make_measurement(CASE, [0.01, 0.011])])], complete=True)
    return path


@pytest.mark.parametrize("arguments", [(), (CASE.id,)], ids=["all cases", "one case"])
def test_history_says_what_the_audits_of_the_same_machine_found(append, arguments):
    append(stepped())
    with contextlib.closing(HistoryStore("sqlite:///artifacts/history.sqlite")) as store:
        store.append_audit(make_audit(0.04))
        store.append_audit(make_audit(0.0, accelerator="another"))

    output = " ".join(run("history", *arguments).output.split())

    assert "of the last 1 hidden slow-down of 3 to 5 %, 1 was found" in output
    assert "hidden nothing" not in output


def test_history_without_a_case_shows_all_cases(append):
    append(stepped())
    append(stepped(ratio=1.0), case=make_case(id="another"))

    done = run("history")

    assert done.exit_code == 0, done.output
    assert [line.split()[0] for line in done.stdout.splitlines()[4:6]] == ["another", CASE.id]
    assert max(map(len, done.stdout.splitlines())) <= 80


@pytest.mark.parametrize("words", [("history",), ("history", "show")])
def test_history_shows_one_case(append, words):
    append(stepped())

    done = run(*words, CASE.id)

    assert done.exit_code == 0, done.output
    assert "between 2026-01-20 and 2026-01-21" in " ".join(done.stdout.split())


def test_history_prints_json(append):
    append(stepped())

    (data,) = json.loads(run("history", CASE.id, "--json").stdout)

    assert data["series"]["case"]["case_id"] == CASE.id


def test_a_case_of_two_machines_is_shown_on_both(append):
    append(stepped())
    append(stepped(), accelerator_key="h200", host="gpu")

    assert run("history", CASE.id).stdout.count("step time") == 2
    assert f"h200: {CASE.id}" in " ".join(run("history").stdout.split())


@pytest.mark.parametrize(("ratio", "code"), [(1.05, 1), (1.0, 0)])
def test_the_changes_are_reported_and_exits_with_1(append, ratio, code):
    append(stepped(ratio=ratio))

    done = run("history", "changes", CASE.id)

    assert done.exit_code == code, done.output
    assert ("git bisect start 000000000014 000000000013" in done.stdout) == (code == 1)


def test_a_file_is_imported_once(results):
    done = run("history", "import", results, results)
    assert done.exit_code == 0, done.output
    assert "2 suites of 2 files: 1 new in sqlite:///artifacts/history.sqlite" in done.stdout

    again = run("history", "import", results)
    assert "1 suites of 1 files: 0 new" in again.stdout
    assert json.loads(run("history", "--json").stdout)[0]["series"]["sessions"][0]["figure"][
        "launches"
    ] == [0.01, 0.011]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda text: text[: len(text) // 2], "cut short"),
        (lambda text: text.replace('"step_time":0.01,', '"step_time":-1.0,'), "no measured figure"),
    ],
    ids=["truncated", "negative"],
)
def test_a_bad_results_file_is_refused_by_name_and_nothing_is_stored(results, change, says):
    text = results.read_text()
    assert change(text) != text
    results.write_text(change(text))

    done = run("history", "import", results)

    assert done.exit_code == 4
    assert says in done.stderr
    assert done.stderr.startswith(f"ddp-perf: {results}: ")
    assert done.stderr.count("\n") == 1
    assert run("history").exit_code == 4


def test_the_files_before_a_bad_one_are_imported(results, here):
    (here / "broken.json").write_text("{")

    done = run("history", "import", results, "broken.json")

    assert done.exit_code == 4
    assert done.stderr.startswith("ddp-perf: broken.json: is cut short")
    assert "0 new" in run("history", "import", results).stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["history"], "there is no such file; --ddp-history writes one"),
        (["history", "--history", "nonsense"], "nonsense: is not the URL of a history"),
        (["history", "changes", "x", "--metric", "speed"], "'speed' is not one of step_time, tail"),
        (["history", "changes"], "Missing argument 'CASE'"),
        (["history", "import"], "Missing argument"),
    ],
)
def test_history_usage_errors_are_refused_in_one_line(arguments, says):
    done = run(*arguments)

    assert done.exit_code == 4
    assert says in done.stderr


def test_an_unknown_case_or_one_without_the_metric_is_refused(append):
    append(stepped())

    assert f"did you mean '{CASE.id}'?" in run("history", CASE.id[:-1]).stderr
    done = run("history", CASE.id, "--metric", "peak_memory")
    assert done.exit_code == 4
    assert f"has no session of {CASE.id} with peak_memory" in done.stderr
