"""``ddp-perf compare``: findings, exit codes, and errors in one line."""

from __future__ import annotations

import json
import math

import msgspec
import pytest
from typer.testing import CliRunner

from ddp_perf.cli.app import app
from ddp_perf.core.disturbance import RankConditions
from ddp_perf.session.results_file import write_results
from tests.builders import (
    make_cases,
    make_environment,
    make_failure,
    make_measurement,
    make_result,
    make_structure,
)

JITTER = (1.0, 1.002, 0.998, 1.001, 0.999)
# With one session on either side only changes beyond what sessions may do can be told: a tolerance
# of 30 % lets equal results pass, one of 5 % does not.
WIDE = dict.fromkeys(("step_time", "tail", "efficiency", "cpu_time", "peak_memory"), 0.3)
ONE, TWO = make_cases(tolerances=WIDE)


def measured(case, step_s, **rank):
    return make_measurement(case, [step_s * factor for factor in JITTER], **rank)


def usual(**rank):
    return [measured(ONE, 0.010, **rank), measured(TWO, 0.012, **rank)]


@pytest.fixture
def results(tmp_path, monkeypatch):
    """``results(name, measurements)`` writes a file and returns its name."""
    monkeypatch.chdir(tmp_path)

    def write(name, measurements, *, complete=True, **changes):
        suites = [make_result(measurements, **changes)] if measurements else []
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


def test_equal_results_pass_if_one_session_can_decide(results, old):
    done = compare(old, results("new.json", usual()))

    assert done.exit_code == 0, done.output
    assert done.stdout.endswith("B against A: PASS\n")
    assert done.stderr == ""


def test_equal_results_are_undecided_if_one_session_cannot_decide(results):
    cases = make_cases(tolerances=dict.fromkeys(WIDE, 0.05))
    equal = [measured(case, 0.010) for case in cases]

    done = compare(results("old.json", equal), results("new.json", equal))

    assert done.exit_code == 2
    assert "INCONCLUSIVE, too few sessions: ddp-ws2: step time" in done.stdout
    assert done.stdout.endswith("B against A: UNDECIDED\n")


def unwrapped(done):
    """Return the output as one line: its line breaks depend on the width."""
    return " ".join(done.stdout.split())


def test_twice_as_slow_is_a_regression_with_table_and_reason(results, old):
    slower = [measured(ONE, 0.020), measured(TWO, 0.024)]

    done = compare(old, results("new.json", slower))

    assert done.exit_code == 1
    assert ["none-ws1", "20.00"] in [line.split()[:2] for line in done.stdout.splitlines()]
    assert "REGRESSION: step time of ddp-ws2: +100.0 % against 1 session" in unwrapped(done)
    assert "significantly slower" in unwrapped(done)
    assert done.stdout.endswith("B against A: REGRESSION\n")


def test_twice_as_fast_is_an_improvement(results, old):
    done = compare(old, results("new.json", [measured(ONE, 0.005), measured(TWO, 0.006)]))

    assert done.exit_code == 0
    assert "IMPROVEMENT: step time of none-ws1" in done.stdout


def test_another_structure_is_a_regression_at_equal_speed(results, old):
    new = results("new.json", usual(structure=make_structure(parameters=809)))

    done = compare(old, new)

    assert done.exit_code == 1
    assert "parameters 808 → 809" in done.stdout


def test_other_work_fails_and_names_the_field_and_what_helps(results, old):
    wider = [
        make_measurement(
            msgspec.structs.replace(case, model={**case.model, "hidden_dim": 48}), [0.01] * 5
        )
        for case in (ONE, TWO)
    ]

    done = compare(old, results("new.json", wider))

    assert done.exit_code == 1
    assert "INCOMPARABLE" in done.stdout
    assert "model.hidden_dim 32 → 48; measure the same work in both sessions" in unwrapped(done)
    assert "--save-baseline" not in done.stdout


def failing():
    whole, failed = usual()
    return [whole, msgspec.structs.replace(failed, failures=(make_failure(TWO),))]


def test_a_case_that_failed_in_the_new_session_is_a_failure(results, old):
    done = compare(old, results("new.json", failing()))

    assert done.exit_code == 1
    assert f"FAILED: {TWO.id}: launch 1: rank 1: exited with code 3" in done.stdout


def test_a_case_that_failed_in_the_old_session_is_undecided(results):
    done = compare(results("old.json", failing()), results("new.json", usual()))

    assert done.exit_code == 2
    assert f"NOT COMPARED: {TWO.id}: failed in old.json: {TWO.id}: launch 1" in done.stdout


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

    assert done.exit_code == 2, done.output
    assert f"NOT COMPARED: {said}\n" in done.stdout


def test_two_empty_files_do_not_pass(results):
    done = compare(results("old.json", []), results("new.json", []))

    assert done.exit_code == 2


BUSY = RankConditions(foreign=0.4)


@pytest.mark.parametrize("disturbed", ["old.json", "new.json"])
def test_a_case_that_was_disturbed_in_either_session_is_undecided(results, disturbed):
    sessions = {"old.json": usual(), "new.json": [measured(ONE, 0.020), measured(TWO, 0.024)]}
    sessions[disturbed] = usual(conditions=BUSY)

    done = compare(*(results(name, measured) for name, measured in sessions.items()))

    assert done.exit_code == 2, done.output
    where = "in old.json " if disturbed == "old.json" else ""
    assert f"of ddp-ws2: {where}5 of 5 launches were disturbed: other processes took 40 %" in (
        unwrapped(done)
    )


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
    done = compare(old, results("new.json", usual()), "--false-alarm-rate", "0.07", "--json")

    report = json.loads(done.stdout)
    assert report["false_alarm_rate"] == 0.07
    assert report["alpha"] == pytest.approx(0.07 / 9)  # 4 metrics of one rank, 5 of two


def test_json_has_the_findings_with_their_reasons(results, old):
    slower = [measured(ONE, 0.010), measured(TWO, 0.024)]
    new = results("new.json", slower, environment=make_environment(commit="fedcba"))

    done = compare(old, new, "--json")

    report = json.loads(done.stdout)
    assert done.exit_code == 1
    assert (report["conclusion"], report["old"], report["new"]) == ("REGRESSION", old, new)
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


def test_results_of_another_accelerator_are_refused_by_both_names(results, old):
    other = make_environment(accelerator="NVIDIA H200", accelerator_key="h200-nvlink")

    line = refused(compare(old, results("new.json", usual(), environment=other)))

    assert "INCOMPARABLE: old.json was measured on Some Processor (cpu-some-2c-host)" in line
    assert "new.json on NVIDIA H200 (h200-nvlink); compare results of one machine" in line


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        pytest.param(lambda text: text[: len(text) // 2], "cut short", id="truncated"),
        pytest.param(lambda text: "", "cut short", id="empty"),
        pytest.param(lambda text: "no JSON\nat all", "is not JSON", id="not JSON"),
        pytest.param(
            lambda text: text.replace('"schema_version":3', '"schema_version":4'),
            "schema_version: is 4, this ddp-perf reads 3",
            id="foreign schema",
        ),
        pytest.param(
            lambda text: text.replace('"p95_step_s":0.01', '"p95_step_s":NaN', 1),
            "p95_step_s: Expected `float`, got `str`",
            id="NaN",
        ),
    ],
)
@pytest.mark.parametrize("which", ["old.json", "new.json"])
def test_a_bad_file_is_refused_by_name_in_one_line(results, old, tmp_path, which, spoil, said):
    results("new.json", usual())
    path = tmp_path / which
    spoiled = spoil(path.read_text(encoding="utf-8"))
    assert spoiled != path.read_text(encoding="utf-8")
    path.write_text(spoiled, encoding="utf-8")

    line = refused(compare("old.json", "new.json"))

    assert line.startswith(f"ddp-perf: {which}: ")
    assert said in line
    assert "pytest --ddp-json" in line


def test_a_figure_that_was_not_finite_when_written_is_refused(results, old):
    nan = make_measurement(ONE, [0.01, math.nan])

    assert "new.json: suites[0]" in refused(compare(old, results("new.json", [nan])))


def test_a_missing_file_is_refused_by_name(old):
    line = refused(compare(old, "nowhere.json"))

    assert "nowhere.json: cannot be read: No such file or directory" in line


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(["old.json"], "B.json", id="one file"),
        pytest.param(["old.json", "old.json", "--jsn"], "--jsn", id="unknown option"),
        pytest.param(
            ["old.json", "old.json", "--false-alarm-rate", "x"], "valid number", id="no number"
        ),
        pytest.param(["old.json", "old.json", "--false-alarm-rate", "0.5"], "0.5", id="too high"),
        pytest.param(["old.json", "old.json", "--false-alarm-rate", "0"], "0", id="zero"),
        pytest.param(["old.json", "old.json", "--false-alarm-rate", "nan"], "nan", id="nan"),
    ],
)
def test_a_wrong_argument_does_not_exit_as_undecided(old, arguments, said):
    assert said in refused(compare(*arguments))


def test_the_help_lists_the_exit_codes():
    done = compare("--help")

    assert done.exit_code == 0
    for code in ("0  pass", "1  regression", "2  undecided", "4  usage"):
        assert code in done.stdout


def test_an_injection_is_reported_before_any_figure(results, old):
    slowed = results("slowed.json", usual(), injections=("compute:20%",))

    text = compare(old, slowed).stdout
    figures = json.loads(compare(old, slowed, "--json").stdout)

    mark = text.index("slowed on purpose: compute:20%")
    assert mark < text.index("samples")
    assert figures["injected"] == {"old.json": [], "slowed.json": ["compute:20%"]}


def test_levels_of_older_results_are_compared_and_a_newer_metric_has_its_remedy(results, tmp_path):
    results("new.json", usual())
    data = json.loads((tmp_path / results("old.json", usual())).read_bytes())
    for suite in data["suites"]:
        for rows in suite["summaries"].values():
            for row in rows:
                row["values"]["step_time"] = 99.0  # a median; it is not compared
    (tmp_path / "old.json").write_text(json.dumps({**data, "schema_version": 2}))

    done = compare("old.json", "new.json", "--json")

    assert done.exit_code == 2, done.output
    by_metric = {f["metric"]: f["verdict"] for f in json.loads(done.stdout)["findings"]}
    assert by_metric["step_time"]["ratio"] == pytest.approx(1.0, abs=0.01)
    assert by_metric["cpu_time"]["reason"].endswith(
        "has no cpu_time; measure both sessions with the same ddp-perf"
    )
