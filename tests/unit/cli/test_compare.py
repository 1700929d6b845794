"""``ddp-perf compare``: findings, exit codes, and errors in one line."""

from __future__ import annotations

import json

import msgspec
import pytest
from typer.testing import CliRunner

from ddp_perf.baselines.save import Refused
from ddp_perf.cli.app import app
from ddp_perf.core.case import with_training
from ddp_perf.core.launch import RankConditions
from ddp_perf.session.result import write_results
from tests.builders import (
    LOSSES,
    make_cases,
    make_environment,
    make_failure,
    make_measurement,
    make_result,
    make_structure,
)

JITTER = (1.0, 1.002, 0.998, 1.001, 0.999)
NOISY = (1.0, 1.3, 0.8, 1.1, 0.9)  # launches that decide nothing at the tolerance
WIDE = dict.fromkeys(("step_time", "tail", "efficiency", "cpu_time", "peak_memory"), 0.3)
ONE, TWO = make_cases(tolerances=WIDE)


def measured(case, step_s, jitter=JITTER, **rank):
    return make_measurement(case, [step_s * factor for factor in jitter], **rank)


def usual(**rank):
    return [measured(ONE, 0.010, **rank), measured(TWO, 0.012, **rank)]


@pytest.fixture
def results(tmp_path, monkeypatch):
    """``results(name, measurements)`` writes a file and returns its name."""
    monkeypatch.chdir(tmp_path)

    def write(name, measurements, *, complete=True, day=1, minute=4, **changes):
        date = f"2026-01-{day:02}T03:{minute:02}:05+00:00"
        suites = [make_result(measurements, date=date, **changes)] if measurements else []
        write_results(tmp_path / name, suites, complete=complete)
        return name

    return write


@pytest.fixture
def old(results):
    return results("old.json", usual())


def compare(*arguments):
    return CliRunner().invoke(app, ["compare", *map(str, arguments)])


def outcomes(done):
    return {
        (finding["case_id"], finding["metric"]): finding["verdict"]["outcome"]
        for finding in json.loads(done.stdout)["findings"]
    }


CASES = make_cases(tolerances=dict.fromkeys(WIDE, 0.05))


def at(*levels, jitter=JITTER):
    """Return a session of the cases of a tolerance of 5 %, at these levels of their steps."""
    return [measured(case, 0.01 * by, jitter) for case, by in zip(CASES, levels, strict=True)]


def test_a_file_against_itself_passes_and_states_what_its_launches_show(results):
    same = results("main.json", at(1.0, 1.0))

    done = compare(same, same)

    assert done.exit_code == 0, done.output
    assert "A and B contain the same session" in done.stdout
    assert "a PASS is about these sessions, by their launches" in unwrapped(done)
    assert "\nB against A: PASS, but a session is on both sides\n" in done.stdout
    assert done.stderr == ""
    ratios = {
        f["verdict"]["ratio"] for f in json.loads(compare(same, same, "--json").stdout)["findings"]
    }
    assert ratios == {1.0, None}  # None: structure and loss


def test_a_branch_that_computes_something_else_is_a_regression_by_its_loss(results):
    other = {step: loss / 2 for step, loss in LOSSES.items()}
    old = results("main.json", [make_measurement(CASES[0], [0.01] * 5)])
    new = results("branch.json", [make_measurement(CASES[0], [0.005] * 5, losses=other)])

    done = compare(old, new)

    assert done.exit_code == 1, done.output
    assert "50 % faster, another loss" in unwrapped(done)
    assert "loss of step 1: 0.8 → 0.4" in unwrapped(done)


def test_a_file_against_itself_has_no_next_session(results):
    same = results("main.json", at(1.0, 1.0, jitter=NOISY))

    done = compare(same, same)

    assert done.exit_code == 75
    assert "\nB against A: UNDECIDED\n" in done.stdout
    assert "next: " not in done.stdout


def test_an_undecided_comparison_ends_with_the_command_that_narrows_it(results):
    old = results("main.json", at(1.0, 1.0, jitter=NOISY))
    new = results("my branch.json", at(1.0, 1.0, jitter=NOISY), day=2)

    done = compare(old, new)

    assert done.exit_code == 75
    assert "by the launches (99.5 % confidence)" in unwrapped(done)
    assert done.stdout.splitlines()[-1] == (
        "next: ddp-perf compare main.json main-2.json vs 'my branch.json' 'my branch-2.json'"
    )
    assert not {"stored", "--save-baseline=append"} & set(done.stdout.split())


def test_more_than_two_sessions_of_a_side_are_worth_it_from_five_on(results):
    two, five = (
        compare(*sides(results, [1.0, 1.12, 1.0, 1.12, 1.0][:n], [1.12, 1.0, 1.12, 1.0, 1.0][:n]))
        for n in (2, 5)
    )

    assert two.stdout.splitlines()[-1].endswith(
        "ddp-perf compare old-0.json old-1.json old-0-2.json old-0-3.json old-0-4.json"
        " vs new-0.json new-1.json new-0-2.json new-0-3.json new-0-4.json"
    )
    *_, why, command = five.stdout.splitlines()
    assert why == "sessions differ too much: use a quieter machine, or raise the tolerance"
    assert command == "next: ddp-perf doctor"


def test_the_names_of_further_files_are_on_no_side_yet(results):
    noisy = at(1.0, 1.0, jitter=NOISY)
    first, second = results("base.json", noisy), results("base-2.json", noisy, day=2)

    done = compare(first, second)

    assert done.stdout.splitlines()[-1].endswith(
        "ddp-perf compare base.json base-3.json vs base-2.json base-2-2.json"
    )


def test_another_order_of_the_same_work_is_not_blamed_on_a_disturbance(results):
    calls = make_structure().collectives
    calls = (calls[0], msgspec.structs.replace(calls[0], bytes=calls[0].bytes + 4))
    before, after = (make_structure(collectives=one) for one in (calls, calls[::-1]))
    old = results("old.json", usual(structure=before))

    done = compare(old, results("new.json", usual(structure=after), day=2))

    assert done.exit_code == 75, done.output
    assert "the same collectives in another order" in unwrapped(done)
    assert "--save-baseline" not in done.stdout  # no baseline is compared
    assert "decide whether the change of the structure is meant" in unwrapped(done)
    assert done.stdout.splitlines()[-1] == "next: pytest -m work"


def test_a_figure_that_a_side_lacks_is_not_blamed_on_a_disturbance(results, old, tmp_path):
    data = json.loads((tmp_path / old).read_bytes())
    for rows in data["suites"][0]["summaries"].values():
        for row in rows:
            del row["values"]["cpu_time"]
    (tmp_path / old).write_text(json.dumps(data), encoding="utf-8")

    done = compare(old, results("new.json", usual()))

    assert done.exit_code == 75, done.output
    assert "measure again what could not be compared, as stated above" in unwrapped(done)
    assert done.stdout.splitlines()[-1].startswith("next: pytest ")


def sides(results, old, new, **jitter):
    """Write sessions of these levels, in turn, and return what the command takes."""
    names = {"old": [], "new": []}
    for side, first, levels in (("old", 1, old), ("new", 2, new)):
        for number, level in enumerate(levels):
            session = at(level, level, **jitter)
            name = results(f"{side}-{number}.json", session, day=first + 2 * number)
            names[side].append(name)
    return [*names["old"], "vs", *names["new"]]


def test_more_sessions_of_each_side_find_a_slow_down_that_one_does_not(results):
    one = compare(*sides(results, [1.0], [1.15]))
    four = compare(*sides(results, [1.0, 1.004, 0.997, 1.0], [1.15, 1.148, 1.153, 1.15]))

    assert (one.exit_code, four.exit_code) == (75, 1), four.output
    assert "in 4 sessions against 4" in unwrapped(four)
    assert "assumed" not in four.stdout


def test_sessions_of_one_hour_count_each(results):
    for minute, name in enumerate(["a.json", "c.json", "b.json", "d.json"]):
        results(name, at(1.3, 1.3) if name in "c.json d.json" else at(1.0, 1.0), minute=minute)

    done = compare("a.json", "b.json", "vs", "c.json", "d.json")

    assert "in 2 sessions against 2" in unwrapped(done)


@pytest.mark.parametrize(("host", "code"), [("x", 0), ("y", 75)])
def test_launches_on_two_hosts_of_a_pool_are_no_pass(results, host, code):
    old = results("old.json", at(1.0, 1.0), environment=make_environment(host="x", pool="ci"))
    there = make_environment(host=host, pool="ci")

    done = compare(old, results("new.json", at(1.0, 1.0), day=2, environment=there))

    assert done.exit_code == code, done.output
    assert ("sessions differ by 6.0 % (assumed)" in unwrapped(done)) is (host == "y")


def test_sessions_that_differ_within_a_side_decide_nothing(results):
    done = compare(*sides(results, [1.0, 1.08], [1.08, 1.0]))

    assert done.exit_code == 75
    assert "sessions differ by" in unwrapped(done)


def test_every_file_is_named_in_the_order_of_the_dates(results):
    arguments = sides(results, [1.0, 1.0], [1.0, 1.0])
    swapped = [arguments[1], arguments[0], *arguments[2:]]

    done = compare(*swapped, "--json")

    report = json.loads(done.stdout)
    assert report["schema_version"] == 1
    assert report["old"] == ["old-0.json", "old-1.json"]
    assert report["new"] == ["new-0.json", "new-1.json"]
    assert [line[:13] for line in compare(*arguments).stdout.splitlines()[:4]] == [
        "A: old-0.json",
        "A: old-1.json",
        "B: new-0.json",
        "B: new-1.json",
    ]


def test_sides_that_were_not_measured_in_turn_are_reported(results):
    in_turn = sides(results, [1.0, 1.0], [1.0, 1.0])
    later = results("later.json", at(1.0, 1.0), day=20)
    last = results("last.json", at(1.0, 1.0), day=21)

    assert "in turn" not in unwrapped(compare(*in_turn))
    assert "not measured in turn" in unwrapped(compare(*in_turn[:3], later, last))


def unwrapped(done):
    """Return the output as one line: its line breaks depend on the width."""
    return " ".join(done.stdout.split())


def test_twice_as_slow_is_a_regression_with_table_and_reason(results, old):
    slower = [measured(ONE, 0.020), measured(TWO, 0.024)]

    done = compare(old, results("new.json", slower))

    assert done.exit_code == 1
    rows = [line.split() for line in done.stdout.splitlines()]
    (one,) = (row for row in rows if row[:2] == ["none-ws1", "REGRESSION"])
    assert "20.00" in one
    assert "step time: +100.0 % in 1 session against 1" in unwrapped(done)
    assert "\nB against A: REGRESSION\n" in done.stdout


def test_twice_as_fast_is_an_improvement(results, old):
    done = compare(old, results("new.json", [measured(ONE, 0.005), measured(TWO, 0.006)]))

    assert done.exit_code == 0
    assert "step time: IMPROVEMENT; -50.0 %" in unwrapped(done)


def test_another_structure_is_a_regression_at_equal_speed(results, old):
    new = results("new.json", usual(structure=make_structure(parameters=809)))

    done = compare(old, new)

    assert done.exit_code == 1
    assert "parameters 808 → 809" in done.stdout


def test_other_work_fails_and_names_the_field_and_what_helps(results, old):
    wider = [
        make_measurement(
            with_training(case, model={**case.training.model, "hidden_dim": 48}), [0.01] * 5
        )
        for case in (ONE, TWO)
    ]

    done = compare(old, results("new.json", wider))

    assert done.exit_code == 1
    assert "INCOMPARABLE" in done.stdout
    assert "model.hidden_dim 32 → 48; measure the same work in both sessions" in unwrapped(done)
    assert "--save-baseline" not in done.stdout


def test_what_the_newer_session_stored_does_not_matter(results, old):
    stored = {
        "save_mode": "missing",
        "not_saved": {TWO.id: Refused(reason="one launch")},
        "saved_structures": {TWO.id: "structure/ours.json"},
    }

    done = compare(old, results("new.json", usual(), **stored))

    assert done.exit_code == 0, done.output
    assert "structure/ours.json" not in done.output


def test_every_verdict_counts_whatever_the_tests_asserted(results, old):
    """The session of ``pytest -k structure`` asserts no time, and a comparison judges them all."""
    slower = [measured(ONE, 0.030), measured(TWO, 0.036)]
    of_structure = {"asserted": {TWO.id: ("structure",)}}

    done = compare(old, results("new.json", slower, **of_structure))

    assert done.exit_code == 1
    (row,) = [line for line in done.stdout.splitlines() if line.split()[:1] == ["ddp-ws2"]]
    assert "REGRESSION" in row
    assert "no test" not in done.stdout


def failing():
    whole, failed = usual()
    return [whole, msgspec.structs.replace(failed, failures=(make_failure(TWO),))]


def test_a_case_that_failed_in_the_new_session_is_a_failure(results, old):
    done = compare(old, results("new.json", failing()))

    assert done.exit_code == 1
    assert f"FAILED: {TWO.id}: launch 1: rank 1: exited with code 3" in done.stdout


def test_no_efficiency_is_invalid_if_one_rank_failed_in_the_new_session(results, old):
    failed, whole = usual()
    failed = msgspec.structs.replace(failed, launches=(), failures=(make_failure(ONE),))

    done = compare(old, results("new.json", [failed, whole]), "--json")

    assert done.exit_code == 1, done.output
    assert outcomes(done)[TWO.id, "efficiency"] == "INVALID"
    assert outcomes(done)[TWO.id, "step_time"] == "PASS"


def test_a_case_that_failed_in_the_old_session_is_undecided(results):
    done = compare(results("old.json", failing()), results("new.json", usual()))

    assert done.exit_code == 75
    assert f"NOT COMPARED: {TWO.id}: failed in old.json: {TWO.id}: launch 1" in unwrapped(done)


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        pytest.param(usual(), usual()[:1], f"{TWO.id}: not in new.json", id="missing in B"),
        pytest.param(usual()[:1], usual(), f"{TWO.id}: not in old.json", id="missing in A"),
        pytest.param(usual(), [], f"{ONE.id}: not in new.json", id="empty B"),
        pytest.param([], usual(), f"{ONE.id}: not in old.json", id="empty A"),
        pytest.param(
            usual(),
            [usual()[0], make_measurement(TWO, [])],
            f"{TWO.id}: no launch finished in new.json",
            id="interrupted B",
        ),
    ],
)
def test_a_case_missing_in_one_file_is_undecided_and_named(results, before, after, said):
    done = compare(results("old.json", before), results("new.json", after))

    assert done.exit_code == 75, done.output
    assert f"NOT COMPARED: {said}\n" in done.stdout


def test_two_empty_files_do_not_pass(results):
    done = compare(results("old.json", []), results("new.json", []))

    assert done.exit_code == 75
    assert "\nB against A: UNDECIDED\n" in done.stdout
    assert "next: " not in done.stdout


BUSY = RankConditions(foreign=0.4)


@pytest.mark.parametrize("disturbed", ["old.json", "new.json"])
def test_a_case_that_was_disturbed_in_either_session_is_undecided(results, disturbed):
    sessions = {"old.json": usual(), "new.json": [measured(ONE, 0.020), measured(TWO, 0.024)]}
    sessions[disturbed] = usual(conditions=BUSY)

    done = compare(*(results(name, measured) for name, measured in sessions.items()))

    assert done.exit_code == 75, done.output
    assert "see what disturbs this machine, and measure the sessions again" in unwrapped(done)
    assert done.stdout.splitlines()[-1] == "next: ddp-perf doctor"
    where = "in old.json " if disturbed == "old.json" else ""
    disturbed = f"{where}5 of 5 launches were disturbed, because other processes took 40 %"
    assert f": {disturbed}" in unwrapped(done)


def test_results_from_before_conditions_were_watched_are_read(results, old, tmp_path):
    path = tmp_path / old
    text = path.read_text(encoding="utf-8")
    unwatched = dict.fromkeys(RankConditions.__struct_fields__)
    data = json.loads(text)
    for measurement in data["suites"][0]["measurements"].values():
        for launch in measurement["launches"]:
            for rank in launch["ranks"]:
                assert rank.pop("conditions") == unwatched
    path.write_text(json.dumps(data), encoding="utf-8")

    assert compare(old, results("new.json", usual())).exit_code == 0


def test_a_renamed_suite_is_compared(results, old):
    assert compare(old, results("new.json", usual(), suite="renamed")).exit_code == 0


def test_an_unfinished_session_is_read_and_reported_as_unfinished(results, old):
    done = compare(old, results("new.json", usual(), complete=False))

    assert done.exit_code == 0
    assert "new.json is incomplete" in done.stdout
    assert "old.json is incomplete" not in done.stdout


def test_other_software_is_compared_and_shown(results, old):
    environment = make_environment(torch="2.14.0", cuda="13.0")

    done = compare(old, results("new.json", usual(), environment=environment))

    assert done.exit_code == 0
    assert "changed: torch 2.13.0 → 2.14.0, cuda unset → 13.0\n" in done.stdout


def test_the_false_alarm_rate_is_shared_by_all_verdicts(results, old):
    done = compare(old, results("new.json", usual()), "--json")

    report = json.loads(done.stdout)
    assert report["false_alarm_rate"] == 0.01
    assert report["alpha"] == pytest.approx(0.01 / 9)  # 4 metrics of one rank, 5 of two


def test_json_has_the_findings_with_their_reasons(results, old):
    slower = [measured(ONE, 0.010), measured(TWO, 0.024)]
    new = results("new.json", slower, environment=make_environment(commit="fedcba"))

    done = compare(old, new, "--json")

    report = json.loads(done.stdout)
    assert done.exit_code == 1
    assert (report["conclusion"], report["old"], report["new"]) == ("REGRESSION", [old], [new])
    assert report["changed"] == ["commit 0123456789ab → fedcba"]
    assert outcomes(done)[TWO.id, "step_time"] == "REGRESSION"
    assert outcomes(done)[ONE.id, "step_time"] == "PASS"


def test_json_names_what_was_not_compared(results, old):
    report = json.loads(compare(old, results("new.json", failing()[1:]), "--json").stdout)

    assert report["gaps"] == [{"case_id": ONE.id, "reason": "not in new.json"}]
    assert [failure["case_id"] for failure in report["failed"]] == [TWO.id]


def refused(done):
    """Return the only line on stderr."""
    assert done.exit_code == 4, done.output
    assert isinstance(done.exception, SystemExit)
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    return line


@pytest.mark.parametrize("which", ["old.json", "new.json"])
def test_a_bad_file_is_refused_by_name_in_one_line(results, old, tmp_path, which):
    results("new.json", usual())
    (tmp_path / which).write_text("{", encoding="utf-8")

    line = refused(compare("old.json", "new.json"))

    assert line.startswith(f"ddp-perf: {which}: is cut short")
    assert "pytest --ddp-json" in line


def test_the_same_file_twice_on_one_side_is_refused(old):
    assert "old.json and old.json are the same session" in refused(compare(old, old, "vs", old))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(["old.json"], "old.json: which files are older", id="one file"),
        pytest.param(["old.json"] * 3, "OLD.json… vs NEW.json…", id="three files"),
        pytest.param(["old.json", "vs"], "OLD.json… vs NEW.json…", id="an empty side"),
        pytest.param(["old.json", "old.json", "--jsn"], "--jsn", id="unknown option"),
    ],
)
def test_a_wrong_argument_does_not_exit_as_undecided(old, arguments, said):
    assert said in refused(compare(*arguments))


def test_an_injection_is_reported_before_any_figure(results, old):
    slowed = results("slowed.json", usual(), injections=("compute:20%",))

    text = unwrapped(compare(old, slowed))
    figures = json.loads(compare(old, slowed, "--json").stdout)

    mark = text.index("slowed on purpose: compute:20%")
    assert mark < text.index("samples")
    assert figures["injected"] == {"old.json": [], "slowed.json": ["compute:20%"]}


def test_a_metric_that_the_older_side_lacks_has_its_remedy(results, tmp_path):
    results("new.json", usual())
    data = json.loads((tmp_path / results("old.json", usual())).read_bytes())
    for suite in data["suites"]:
        for rows in suite["summaries"].values():
            for row in rows:
                del row["values"]["cpu_time"]
    (tmp_path / "old.json").write_text(json.dumps(data))

    done = compare("old.json", "new.json", "--json")

    assert done.exit_code == 75, done.output
    by_metric = {f["metric"]: f["verdict"] for f in json.loads(done.stdout)["findings"]}
    assert by_metric["step_time"]["ratio"] == pytest.approx(1.0, abs=0.01)
    assert by_metric["cpu_time"]["reason"].endswith(
        "has no cpu_time; measure both sessions with the same ddp-perf"
    )
