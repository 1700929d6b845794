"""``ddp-perf baseline``: its commands list, show, diff, log, promote and ack."""

from __future__ import annotations

import datetime
import json
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from ddp_perf.baselines.store import BaselineStore
from ddp_perf.cli.app import app
from ddp_perf.core.baseline import Rebaseline
from ddp_perf.core.verdict import Outcome
from ddp_perf.session.result import write_results
from tests.builders import (
    LOSSES,
    make_baseline,
    make_case,
    make_case_baseline,
    make_finding,
    make_measurement,
    make_result,
    make_session,
    make_structure,
)

CASE = make_case()
KEY = "cpu-some-2c-host"
DAY = (datetime.date.today() + datetime.timedelta(days=30)).isoformat()
UNTIL = ("--until", DAY)
AT_MOST = ("--at-most", "1.2")
ENTRY = Rebaseline(date="2026-01-05", commit="abc", reason="larger buckets", ratio=1.2)


def run(*arguments):
    return CliRunner().invoke(app, ["baseline", *map(str, arguments)])


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return BaselineStore(tmp_path / "baselines")


@pytest.fixture
def stored(store):
    """A baseline file of one case, replaced twice, at first by an unknown change."""
    first = msgspec.structs.replace(ENTRY, date="2026-01-04", ratio=None)
    case = make_case_baseline(CASE, make_session([0.012], day=5), log=(first, ENTRY))
    return store.update(KEY, lambda _: make_baseline({CASE.id: case}))


@pytest.fixture
def results(tmp_path):
    """``results(**changes)`` writes a results file."""

    def write(*, complete=True, step_s=(0.01, 0.0101), **changes):
        path = tmp_path / "results.json"
        result = make_result([make_measurement(CASE, step_s)], **changes)
        write_results(path, [result], complete=complete)
        return path

    return write


def test_an_option_of_the_group_after_the_command_is_refused_with_its_place():
    result = run("list", "--baselines", "elsewhere")

    assert result.exit_code == 4
    assert "comes before the command: " in result.stderr
    assert " baseline --baselines … list" in result.stderr


def test_the_texts_of_a_baseline_file(stored, tmp_path, file_regression):
    old = tmp_path / "old"
    faster = msgspec.json.decode(stored.read_bytes())
    faster["cases"][CASE.id]["sessions"][0]["launches"]["step_time"][0] = 0.01
    old.write_bytes(msgspec.json.encode(faster))

    done = [run(*words) for words in (["list"], ["show", KEY], ["log"], ["diff", old, stored])]

    assert [one.exit_code for one in done] == [0, 0, 0, 1]
    text = "\n".join(one.stdout for one in done)
    file_regression.check(text, extension=".txt", encoding="utf-8")
    level = json.loads(run("diff", old, stored, "--json").stdout)["cases"][0]["levels"][0]
    assert (level["old"], level["new"]) == (0.01, 0.012)
    same = run("diff", stored, stored)
    assert (same.exit_code, same.stdout) == (0, "no difference\n")


def test_the_json_of_a_baseline_file(stored):
    assert json.loads(run("list", "--json").stdout)[0]["accelerator"] == KEY
    assert json.loads(run("show", KEY, CASE.id, "--json").stdout)["cases"].keys() == {CASE.id}
    assert json.loads(run("log", "--json").stdout)[KEY][CASE.id][1]["ratio"] == 1.2


def test_the_group_names_another_directory_for_each_command(stored, tmp_path):
    stored.parent.rename(tmp_path / "other")

    for words in (["list"], ["show", KEY], ["log"], ["ack", CASE.id, *UNTIL, *AT_MOST]):
        reason = ["--reason", "see #12"] if words[0] == "ack" else []
        assert run(*words, *reason).exit_code == 4
        assert run("--baselines", "other", *words, *reason).exit_code == 0


def test_diff_of_a_shipped_file_sees_a_published_figure(tmp_path):
    shipped = Path(__file__).parents[3] / "baselines" / "v100-pcie-16gb.json"
    edited = tmp_path / "edited"
    content = msgspec.json.decode(shipped.read_bytes())
    row = content["published"][0]["rows"][0]
    row["step_ms"] += 1
    edited.write_bytes(msgspec.json.encode(content))

    done = run("diff", shipped, edited)

    assert done.exit_code == 1, done.output
    assert f"step_ms {row['step_ms'] - 1} → {row['step_ms']}" in done.stdout
    assert content["published"][0]["name"] in done.stdout


def test_promote_stores_a_session_once(results, store):
    first, second = run("promote", results()), run("promote", results(), "--mode", "append")

    assert first.exit_code == 0, first.output
    assert "stored in" in first.stdout
    assert second.exit_code == 1
    assert "this session is already stored" in " ".join(second.stdout.split())
    assert len(store.load(KEY).cases[CASE.id].sessions) == 1


def test_promote_reports_why_a_case_is_not_stored(results):
    done = run("promote", results(step_s=(0.01,)), "--json")

    assert done.exit_code == 1
    note = json.loads(done.stdout)[CASE.id]
    assert note.startswith("not stored: one launch has no spread")
    assert "; the structure is stored in " in note


def test_promote_reports_what_is_left_out(results):
    done = run("promote", results(step_s=(0.01, 0.03)), "--json")

    assert done.exit_code == 0
    assert ", without step time, tail" in json.loads(done.stdout)[CASE.id]


@pytest.mark.parametrize(
    ("changes", "arguments", "says"),
    [
        ({"complete": False}, [], "a whole session is stored; measure it again with pytest --save"),
        ({"injections": ("compute:5%",)}, [], "ranks that --ddp-inject slowed give no baseline"),
        ({}, ["--mode", "accept"], "--reason: --mode accept needs it"),
        ({}, ["--reason", "x"], "--reason: --mode accept needs it"),
        ({}, ["--mode", "accept", "--reason", "…"], "--reason: '…' has no word"),
        ({}, ["--mode", "always"], "'always' is not one of missing, append, accept"),
    ],
)
def test_promote_refuses_what_cannot_be_stored(results, store, changes, arguments, says):
    done = run("promote", results(**changes), *arguments)

    assert done.exit_code == 4
    assert says in done.stderr
    assert not store.path(KEY).exists()


@pytest.mark.parametrize("reason", ["…", "...", ""])
def test_ack_refuses_a_reason_without_a_word(stored, reason):
    before = stored.read_bytes()

    done = run("ack", CASE.id, "--reason", reason, *UNTIL)

    assert done.exit_code == 4
    assert f"--reason: {reason!r} has no word: state why" in done.stderr
    assert stored.read_bytes() == before


def test_ack_is_written_replaced_and_shown(stored, store):
    arguments = ("ack", CASE.id, *UNTIL, *AT_MOST, "--reason")

    for reason in ("new kernel", "see #12"):
        done = run(*arguments, reason)
        assert done.exit_code == 0, done.output

    (said,) = store.load(KEY).acknowledged
    assert (said.case, said.metric, said.reason) == (CASE.id, "step_time", "see #12")
    assert f'step time of {CASE.id}, +20.0 % until {DAY}: "see #12"' in " ".join(
        run("show", KEY).stdout.split()
    )


def slower(case=CASE):
    """Return findings of a session in which everything that is gated got worse."""
    timed = [
        make_finding(case, Outcome.REGRESSION, metric=metric, ratio=1.3)
        for metric in ("step_time", "tail", "cpu_time", "peak_memory")
    ]
    exact = [make_finding(case, Outcome.REGRESSION, metric=name) for name in ("structure", "loss")]
    return (*timed, *exact)


def test_ack_of_several_metrics_names_those_that_still_fail(stored, store, results):
    one = run("ack", CASE.id, "--reason", "r", *UNTIL, *AT_MOST)
    others = ("structure", "loss", "tail", "cpu_time", "peak_memory")
    arguments = [text for metric in others for text in ("--metric", metric)]
    shown = ("--results", results(findings=slower()))
    rest = run("ack", CASE.id, "--reason", "r", *UNTIL, *arguments, *shown)

    assert one.stdout.splitlines()[-1].endswith(
        "are gated: tail, cpu_time, peak_memory, structure, loss"
    )
    assert rest.exit_code == 0, rest.output
    assert "not acknowledged" not in rest.stdout
    said = {known.metric for known in store.load(KEY).acknowledged}
    assert said == {"step_time", *others}


def test_ack_covers_what_a_session_shows_and_no_other_value(stored, store, results):
    shown = ("--results", results(findings=slower()))
    metrics = [text for name in ("tail", "structure", "loss") for text in ("--metric", name)]

    done = run("ack", CASE.id, "--reason", "r", *UNTIL, *metrics, *shown)

    assert done.exit_code == 0, done.output
    given = {one.metric: one for one in store.load(KEY).acknowledged}
    assert given["tail"].ratio == 1.3
    assert given["structure"].structure == make_structure()
    assert given["loss"].losses == LOSSES


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "no stored session of"),
        (["--metric", "structure"], "--results FILE names the session that shows it"),
        (["--metric", "loss", *AT_MOST], "--at-most: is of times"),
        (["--at-most", "1.0"], "--at-most: 1.0 is no slow-down; 1.2 covers 20 %"),
        (["--at-most", "nan"], "--at-most: nan is no slow-down; 1.2 covers 20 %"),
        ([*AT_MOST, "--until", "2999-12-31"], "--until: 2999-12-31 is more than a year ahead"),
        (["--results", "results.json"], "has no step_time of"),
        (["--metric", "loss", "--results", "nan.json"], "is not finite, or differs between"),
    ],
)
def test_ack_refuses_what_has_no_bound(stored, store, results, tmp_path, arguments, says):
    odd = make_finding(CASE, Outcome.REGRESSION, metric="loss")
    nan = make_measurement(CASE, (0.01, 0.0101), losses=dict.fromkeys(LOSSES))
    write_results(tmp_path / "nan.json", [make_result([nan], findings=(odd,))], complete=True)
    results()
    before = stored.read_bytes()

    done = run("ack", CASE.id, "--reason", "r", *UNTIL, *arguments)

    assert done.exit_code == 4, done.output
    assert says in " ".join(done.stderr.split())
    assert stored.read_bytes() == before


def test_ack_of_a_missed_target_covers_it_whatever_its_figure(stored, store):
    done = run("ack", CASE.id, "--reason", "r", *UNTIL, "--metric", "target:efficiency")

    assert done.exit_code == 0, done.output
    (given,) = store.load(KEY).acknowledged
    assert (given.metric, given.ratio) == ("target:efficiency", None)
    assert f"efficiency target of {CASE.id}" in " ".join(done.stdout.split())


def test_ack_names_metrics_whose_acknowledgement_has_ended(stored):
    done = run("ack", CASE.id, "--reason", "r", "--until", "2020-01-01")

    assert done.stdout.splitlines()[-1].endswith(
        "are gated: step_time, tail, cpu_time, peak_memory, structure, loss"
    )


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["ack", CASE.id[:-1]], f"did you mean '{CASE.id}'?"),
        (
            ["ack", CASE.id, "--metric", "speed"],
            "'speed' is not one of step_time, tail, efficiency, cpu_time, peak_memory, energy,"
            " structure",
        ),
        (
            ["ack", CASE.id, "--accelerator", "t4"],
            f"t4.json: there is no such baseline; there are: {KEY}",
        ),
        (["ack", CASE.id, "--until", "soon"], "'soon' is not a date, as in 2026-12-31"),
    ],
)
def test_ack_refuses_wrong_arguments(stored, store, arguments, says):
    before = store.path(KEY).read_bytes()

    done = run(*arguments, "--reason", "r", *(() if "--until" in arguments else UNTIL))

    assert done.exit_code == 4
    assert says in done.stderr
    assert store.path(KEY).read_bytes() == before


def test_ack_needs_the_accelerator_of_a_case_that_two_files_have(stored, store):
    case = make_case_baseline(CASE)
    store.update("t4", lambda _: make_baseline({CASE.id: case}, accelerator="t4"))
    arguments = ("ack", CASE.id, "--reason", "r", *UNTIL, *AT_MOST)

    assert f"is stored for {KEY}, t4; name one with --accelerator" in run(*arguments).stderr
    assert run(*arguments, "--accelerator", "t4").exit_code == 0
    assert store.load(KEY).acknowledged == ()
    assert len(store.load("t4").acknowledged) == 1


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (("list",), "no baseline file here"),
        (("log",), "no baseline file here"),
        (("show", "h200"), "there is no such baseline"),
        (("diff", "a", "b"), "No such file"),
    ],
)
def test_a_missing_file_is_refused(command, says):
    done = run(*command)

    assert done.exit_code == 4
    assert says in done.stderr


@pytest.mark.parametrize(
    ("name", "says"),
    [
        (KEY[:-1], f"did you mean {KEY!r}?"),
        (f"{KEY}.json", f"did you mean {KEY!r}?"),
        ("zzz", f"there are: {KEY}"),
    ],
)
def test_show_suggests_a_baseline_that_is_there(stored, name, says):
    done = run("show", name)

    assert done.exit_code == 4
    assert says in done.stderr


def test_show_takes_the_path_of_a_file_too(stored, store):
    assert run("show", str(store.path(KEY))).stdout == run("show", KEY).stdout


def test_show_of_a_results_file_names_its_kind(tmp_path):
    write_results(tmp_path / "results.json", [], complete=True)

    done = run("show", str(tmp_path / "results.json"))

    assert done.exit_code == 4
    assert "this is the results of a session, not a baseline file" in done.stderr


def test_show_names_the_cases_that_have_no_step_time(store):
    session = msgspec.structs.replace(make_session([0.012]), launches=({"peak_memory": 1000.0},))
    case = make_case_baseline(CASE, session, first={})
    store.update(KEY, lambda _: make_baseline({CASE.id: case}))

    done = run("show", KEY)

    assert done.exit_code == 0, done.output
    text = " ".join(done.stdout.split())
    assert f"no level of the step yet, only other metrics: {CASE.id};" in text
