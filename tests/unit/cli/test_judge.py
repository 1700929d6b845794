"""``ddp-perf judge``: a series of results files, judged by stored sessions, and appended."""

from __future__ import annotations

import json

import msgspec
import pytest
from typer.testing import CliRunner

from ddp_perf.baselines.store import BaselineStore
from ddp_perf.cli.app import app
from ddp_perf.report.commands.judged_series import SeriesFile
from ddp_perf.session.result import write_results
from tests.builders import (
    make_acknowledgement,
    make_baseline,
    make_case_baseline,
    make_cases,
    make_environment,
    make_failure,
    make_measurement,
    make_result,
    make_session,
)

JITTER = (1.0, 1.002, 0.998, 1.001, 0.999)
CASE = make_cases()[0]
KEY = "cpu-some-2c-host"
# Eight sessions of January and their levels: they differ a little, as sessions do.
LEVELS = (0.01, 0.01002, 0.00999, 0.01001, 0.00998, 0.01, 0.01001, 0.00999)


def day(number):
    return f"2026-01-{number:02}T03:04:05+00:00"


def launches(level):
    return [level * factor for factor in JITTER]


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    return BaselineStore(tmp_path / "baselines")


@pytest.fixture
def results(tmp_path):
    """``results(day, level)`` writes the results file of a session and returns its name."""

    def write(number, level=0.01, *, name=None, complete=True, measurement=None, **changes):
        name = name or f"day{number:02}.json"
        measured = measurement or make_measurement(CASE, launches(level))
        result = make_result([measured], **{"date": day(number), **changes})
        write_results(tmp_path / name, [result], complete=complete)
        return name

    return write


@pytest.fixture
def january(results):
    """The results files of eight quiet sessions, and no baseline."""
    return [results(number, level) for number, level in enumerate(LEVELS, start=1)]


@pytest.fixture
def stored(store):
    """The same eight sessions, stored."""
    sessions = [make_session(launches(level), day=n) for n, level in enumerate(LEVELS, start=1)]
    case = make_case_baseline(CASE, *sessions)
    return store.update(KEY, lambda _: make_baseline({CASE.id: case}))


def judge(*arguments):
    return CliRunner().invoke(app, ["judge", *map(str, arguments)])


def sessions_of(done):
    return json.loads(done.stdout)["sessions"]


def outcomes(session, metric="step_time"):
    """Return the outcome of the metric in a session of the JSON."""
    return [f["verdict"]["outcome"] for f in session["findings"] if f["metric"] == metric]


def refused(done):
    """Return the only line on stderr."""
    assert done.exit_code == 4, done.output
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    return line


def test_a_session_as_fast_as_the_stored_ones_passes(stored, results):
    before = stored.read_bytes()

    done = judge(results(9))

    assert done.exit_code == 0, done.output
    assert "1 session: PASS" in done.stdout
    assert stored.read_bytes() == before


def test_a_slower_session_is_a_regression_with_its_next_command(stored, results):
    done = judge(results(9, 0.02))

    assert done.exit_code == 1
    assert "step time: +1" in done.stdout
    assert done.stdout.splitlines()[-1] == "next: ddp-perf explain day09.json"


def test_without_a_baseline_a_session_is_undecided(results):
    assert judge(results(9)).exit_code == 75


def test_a_session_is_judged_only_by_older_ones(stored, results):
    """The sixth session of the month: judged by five stored ones, neither by itself nor later."""
    (session,) = sessions_of(judge(results(6), "--json"))

    assert {f["sessions"] for f in session["findings"] if f["metric"] == "step_time"} == {5}


def test_a_session_that_is_older_than_every_stored_one_is_undecided(stored, results):
    done = judge(results(1, 0.02), "--json")

    assert done.exit_code == 75
    assert outcomes(sessions_of(done)[0]) == ["NO_BASELINE"]


def test_sessions_are_judged_oldest_first_however_they_are_given(stored, results):
    later, earlier = results(10), results(9, 0.02)

    done = judge(later, earlier, "--json")

    assert [session["file"] for session in sessions_of(done)] == [earlier, later]
    assert [outcomes(session) for session in sessions_of(done)] == [["REGRESSION"], ["PASS"]]
    assert done.exit_code == 1  # in any session


def test_without_append_nothing_is_written_and_no_session_judges_another(january, store):
    done = judge(*january, "--json")

    assert not store.directory.exists()
    assert [outcomes(session) for session in sessions_of(done)] == [["NO_BASELINE"]] * 8


def test_append_replays_a_month_into_an_empty_directory(january, results, store):
    done = judge(*january, results(9, 0.02), results(10), "--append", "--json")

    shown = sessions_of(done)
    assert outcomes(shown[0]) == ["NO_BASELINE"]
    assert [outcomes(session) for session in shown[7:9]] == [["PASS"], ["REGRESSION"]]
    case = store.load(KEY).cases[CASE.id]
    assert [session.date for session in case.sessions] == [day(n) for n in range(1, 11)]
    levels = [session.values("step_time")[0] for session in case.sessions[:8]]
    assert levels == pytest.approx(LEVELS)
    assert case.sessions[8].verdicts.keys() >= {"step_time"}


def test_older_undecided_sessions_do_not_count_if_the_newest_one_passes(january):
    done = judge(*january, "--append")

    assert done.exit_code == 0, done.output
    assert "8 sessions: PASS" in done.stdout


def test_append_in_one_run_equals_append_file_by_file(january, store, tmp_path):
    judge(*january, "--append", "--baselines", "at-once")
    for file in january:
        judge(file, "--append", "--baselines", "one-by-one")

    at_once, one_by_one = (
        (tmp_path / name / f"{KEY}.json").read_bytes() for name in ("at-once", "one-by-one")
    )
    assert at_once == one_by_one


def test_a_session_that_is_stored_already_is_judged_as_then_and_not_stored_again(january, store):
    first = judge(*january, "--append", "--json")
    before = store.path(KEY).read_bytes()

    again = judge(*january, "--append", "--json")

    assert store.path(KEY).read_bytes() == before
    for then, now in zip(sessions_of(first), sessions_of(again), strict=True):
        assert now["findings"] == then["findings"]
        why = {"reason": "this session is already stored", "cause": None}
        assert now["not_saved"] == {CASE.id: why}


def test_an_older_session_than_the_newest_stored_one_is_not_appended(stored, results):
    before = stored.read_bytes()

    done = judge(results(7, date="2026-01-07T23:00:00+00:00"), "--append")

    assert "older than the newest stored one" in done.stdout
    assert stored.read_bytes() == before


def test_an_acknowledged_regression_does_not_fail(stored, results, store):
    given = make_acknowledgement(CASE)
    store.update(KEY, lambda now: msgspec.structs.replace(now, acknowledged=(given,)))

    session = sessions_of(judge(results(9, 0.02), "--json"))[0]

    known = [f["known"]["state"] for f in session["findings"] if f["known"]]
    assert known[0] == "expected"
    expected = {f["metric"] for f in session["findings"] if f["known"]}
    others = {
        f["metric"] for f in session["findings"] if f["verdict"]["outcome"] == "REGRESSION"
    } - expected
    assert session["conclusion"] == ("REGRESSION" if others else "UNDECIDED")


def test_a_failed_case_is_a_regression(stored, results):
    failed = msgspec.structs.replace(
        make_measurement(CASE, launches(0.01)), failures=(make_failure(CASE),)
    )

    done = judge(results(9, measurement=failed))

    assert done.exit_code == 1
    assert f"FAILED: {CASE.id}: launch 1" in done.stdout


def test_each_session_is_judged_by_the_file_of_its_own_accelerator(stored, results):
    here, there = results(9), results(10, environment=make_environment(accelerator_key="cpu-x"))

    done = judge(here, there, "--json")

    assert [session["accelerator"] for session in sessions_of(done)] == [KEY, "cpu-x"]
    assert [outcomes(session) for session in sessions_of(done)] == [["PASS"], ["NO_BASELINE"]]
    assert done.exit_code == 75  # the newest of each accelerator


def test_json_has_its_documented_form(stored, results):
    done = judge(results(9, 0.02), "--json")

    file = msgspec.json.decode(done.stdout, type=SeriesFile)
    assert (file.schema_version, file.conclusion.value) == (1, "REGRESSION")
    (session,) = file.sessions
    assert (session.file, session.date, session.suite) == ("day09.json", day(9), "quick")


def test_an_unfinished_session_is_judged_and_reported_and_never_appended(stored, results):
    unfinished = results(9, complete=False)
    before = stored.read_bytes()

    assert "day09.json is incomplete" in judge(unfinished).stdout
    line = refused(judge(results(10), unfinished, "--append"))
    assert "day09.json: it was written while its session was still running" in line
    assert stored.read_bytes() == before


def test_an_injected_session_is_judged_and_never_appended(stored, results):
    slowed = results(9, 0.02, injections=("compute:100%",))
    before = stored.read_bytes()

    done = judge(slowed)

    assert done.exit_code == 1
    assert "slowed on purpose: compute:100%" in done.stdout
    assert "ranks that --ddp-inject slowed" in refused(judge(results(10), slowed, "--append"))
    assert stored.read_bytes() == before


def test_the_same_session_in_two_files_is_refused_by_both_names(results, store):
    line = refused(judge(results(9), results(9, name="copy.json"), "--append"))

    assert "day09.json and copy.json contain the same session" in line
    assert not store.directory.exists()


def test_a_broken_file_is_refused_before_anything_is_written(january, store, tmp_path):
    (tmp_path / "broken.json").write_text("{", "utf-8")

    assert "broken.json: " in refused(judge(*january, "broken.json", "--append"))
    assert "nowhere.json: " in refused(judge(*january, "nowhere.json", "--append"))
    assert not store.directory.exists()


def test_a_broken_baseline_is_refused_by_name(stored, results):
    stored.write_text("{", "utf-8")

    assert f"{KEY}.json" in refused(judge(results(9)))


def test_a_file_without_measurements_is_named(stored, results, tmp_path):
    write_results(tmp_path / "empty.json", [], complete=True)

    done = judge(results(9), "empty.json")

    assert (done.exit_code, done.stderr) == (0, "ddp-perf: empty.json: nothing was measured\n")
    assert judge("empty.json").exit_code == 75


def test_a_session_stored_meanwhile_is_not_lost(january, store, monkeypatch):
    """Another process stores a session after the baseline was read, and before it is written."""
    update = BaselineStore.update

    def meanwhile(self, accelerator, change):
        other = make_baseline({"other": make_case_baseline(CASE)})
        path = update(self, accelerator, lambda _: other)
        monkeypatch.setattr(BaselineStore, "update", update)
        update(self, accelerator, change)
        return path

    monkeypatch.setattr(BaselineStore, "update", meanwhile)

    assert "another process stored a session" in refused(judge(*january, "--append"))
    assert store.load(KEY).cases.keys() == {"other"}


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        pytest.param([], "RESULTS.json", id="no file"),
        pytest.param(["--apend"], "--apend", id="unknown option"),
    ],
)
def test_a_wrong_argument_is_refused(results, arguments, why):
    files = [results(9)] if arguments else []

    assert why in refused(judge(*files, *arguments))
