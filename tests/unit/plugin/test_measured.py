"""A verdict makes its test pass, fail, skip or xfail, with the reason."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest
from msgspec.structs import replace

from ddp_perf.baselines.store import BaselineStore
from ddp_perf.core.launch import RankConditions
from ddp_perf.errors import ExitCode
from tests.builders import (
    CPU_S,
    make_acknowledgement,
    make_capacity,
    make_gpu_machine,
    make_launch,
    make_probe,
    make_utilisation,
)
from tests.projects import TINY

ONE, TWO = "mlp-none-fp32-ws1-b16", "mlp-ddp-fp32-ws2-b16"
STEP = "step_time and ws1"
OTHERS = 12  # tests that are left if one of the two cases' tests is selected


def under(conditions):
    """Return an answer: launches of the usual speed, under these conditions."""
    return lambda request: make_launch(request.case, request.round, conditions=conditions)


@pytest.mark.parametrize(
    ("one_s", "outcome", "said"),
    [
        (0.0100, "passed", None),
        (0.0080, "passed", None),
        (0.0200, "failed", "REGRESSION: step time"),
        (0.0106, "skipped", "UNDECIDED: step time"),
    ],
    ids=["as fast", "faster", "slower", "cannot tell"],
)
def test_the_verdict_decides_the_outcome_of_its_test(project, one_s, outcome, said):
    project.store(sessions=1 if outcome == "skipped" else 6)
    project.answer = project.steps_of(one_s, 0.012)

    result = project.run("-k", STEP, "-rs")

    result.assert_outcomes(**{outcome: 1}, deselected=OTHERS)
    if said is not None:
        assert said in str(result.stdout)


def test_a_test_asserts_the_verdict_on_its_own_metric(project):
    project.store()
    project.answer = lambda request: make_launch(request.case, request.round, peak_memory=2000)

    project.run("-k", "memory and ws1").assert_outcomes(failed=1, deselected=OTHERS)
    project.run("-k", STEP).assert_outcomes(passed=1, deselected=OTHERS)


@pytest.mark.parametrize(("factor", "outcome"), [(1, "passed"), (2, "failed")])
def test_the_test_of_cpu_time_asserts_it_also_on_a_busy_machine(project, factor, outcome):
    """The wall clock of the same launches decides nothing."""
    busy = {"conditions": RankConditions(foreign=0.3), "cpu_s": (factor * CPU_S,) * 6}
    project.store()
    project.answer = lambda request: make_launch(request.case, request.round, **busy)

    project.run("-k", "cpu_time and ws1").assert_outcomes(**{outcome: 1}, deselected=OTHERS)
    project.run("-k", STEP).assert_outcomes(skipped=1, deselected=OTHERS)


def test_disturbed_launches_skip_the_test_with_the_cause(project):
    project.store()
    project.answer = under(RankConditions(foreign=0.5))

    result = project.run("-k", STEP, "-rs")

    result.assert_outcomes(skipped=1, deselected=OTHERS)
    assert "INVALID" in str(result.stdout)
    assert "other processes took 50 %" in str(result.stdout)


def test_a_reason_that_tests_share_is_whole_in_the_first_of_them(project):
    project.store()
    project.answer = under(RankConditions(foreign=0.5))

    result = project.run("-rs", "--tb=no")

    skipped = [line for line in result.outlines if line.startswith("SKIPPED")]
    assert sum("INVALID" in line for line in skipped) > 1
    assert str(result.stdout).count("the figures alone give") == 1
    assert "for the reason of a test before" in str(result.stdout)
    assert sum(line.startswith("next: ") for line in result.outlines) == 1


def test_a_test_without_a_baseline_fails_and_is_skipped_if_it_is_stored(project):
    project.run("-k", STEP).assert_outcomes(failed=1, deselected=OTHERS)

    result = project.run("-k", STEP, "--save-baseline", "-rs")

    result.assert_outcomes(skipped=1, deselected=OTHERS)
    assert "stored in" in str(result.stdout)


def test_a_first_session_that_a_busy_machine_cannot_store_is_undecided_with_the_remedy(project):
    project.answer = under(RankConditions(foreign=0.5))

    result = project.run("-k", STEP, "--save-baseline", "-rs")

    result.assert_outcomes(skipped=1, deselected=OTHERS)
    assert "NO_BASELINE" in str(result.stdout)
    assert "without step time, tail" in str(result.stdout)
    assert " launches were disturbed" in str(result.stdout)
    why, command = result.outlines[-2:]
    assert why == "store it again when the machine is quiet"
    assert command.startswith("next: pytest ")
    assert command.count("--save-baseline") == 1


def test_a_session_of_the_same_half_day_is_stored_and_does_not_count_again(project):
    first = project.run("-k", STEP, "--save-baseline=append", "-rs")
    second = project.run("-k", STEP, "--save-baseline=append")

    assert "counts as one" not in str(first.stdout)
    shown = " ".join(str(second.stdout).split())
    assert "; it counts as one with the session of " in shown
    assert "UTC, less than 12 hours before" in shown


def test_an_accepted_regression_is_skipped_and_an_appended_one_fails(project):
    project.store()
    project.answer = project.steps_of(0.020, 0.024)

    appended = project.run("-k", STEP, "--save-baseline=append")
    accepted = project.run("-k", STEP, "--save-baseline=accept", "--ddp-reason=meant", "-rs")

    appended.assert_outcomes(failed=1, deselected=OTHERS)
    accepted.assert_outcomes(skipped=1, deselected=OTHERS)
    assert "accepted as the new level in" in str(accepted.stdout)


@pytest.mark.parametrize(
    ("until", "outcome"), [("9999-12-31", "xfailed"), ("2026-01-01", "failed")]
)
def test_a_known_regression_is_expected_until_its_day(project, until, outcome):
    known = make_acknowledgement(project.cases()[0], until=until)
    project.store(acknowledged=(known,))
    project.answer = project.steps_of(0.020, 0.024)

    project.run("-k", STEP).assert_outcomes(**{outcome: 1}, deselected=OTHERS)


def test_a_regression_fails_with_its_explanation(project):
    def answer(late_s):
        probe = make_probe(data=0.0001 + late_s)
        return lambda request: make_launch(
            request.case,
            request.round,
            step_s=(0.0101 + late_s) * (1 + 0.001 * (request.round % 3)),
            probe=probe,
        )

    project.answer = answer(0.0)
    project.run("--save-baseline")
    project.repeat_stored(6)
    project.answer = answer(0.005)
    step = project.run("-k", STEP)
    tail = project.run("-k", "tail and ws1")

    step.assert_outcomes(failed=1, deselected=OTHERS)
    assert "data" in str(step.stdout).partition("REGRESSION: step time")[2]
    tail.assert_outcomes(passed=1, deselected=OTHERS)


def properties(project, *arguments):
    """Return the JUnit entry of the only test."""
    project.run("--junitxml=junit.xml", *arguments)
    (case,) = ElementTree.parse(project.path / "junit.xml").iter("testcase")
    return {p.get("name"): p.get("value") for p in case.iter("property")}


def test_junit_has_the_verdict_with_its_figures(project):
    project.store()
    project.answer = project.steps_of(0.020, 0.024)

    found = properties(project, "-k", STEP)

    assert (found["metric"], found["verdict"]) == ("step_time", "REGRESSION")
    assert found["reason"].startswith("+100.4 % against 5 sessions (99 % interval ")
    assert float(found["value"]) == pytest.approx(0.020)
    assert float(found["baseline"]) == pytest.approx(0.010, rel=0.01)
    assert float(found["ratio"]) == pytest.approx(2, rel=0.01)
    assert found["baseline_date"].startswith("2026-01-01")
    assert 0 < float(found["minimum_detectable"]) < 1
    low, high = map(float, found["interval"].strip("()").split(","))
    assert low < 2 < high


def test_junit_has_injections_and_changed_software(project):
    project.store()

    found = properties(project, "-k", STEP, "--ddp-inject=compute:20%")

    assert found["injected"] == "compute:20%"
    assert "→" in found["changed"]  # this machine's Python is not that of the stored sessions


def test_junit_has_the_utilisation(project):
    project.answer = lambda request: make_launch(
        request.case, request.round, utilisation=make_utilisation()
    )

    found = properties(project, "-k", STEP)

    assert (float(found["cpu_cores"]), float(found["system_cores"])) == (0.5, 0.1)
    assert "gpu_busy" not in found


@pytest.mark.parametrize(("disturbed", "red"), [(1, False), (2, True)])
def test_a_strict_session_fails_if_more_than_a_fifth_is_undecided(project, disturbed, red):
    sizes = [2**power for power in range(4, 9)]
    suite = TINY.replace("[16]", str(sizes)).replace("[1, 2]", "[1]")
    project.suite("tiny", suite + "tolerances: {step_time: 0.2}\n")
    project.run("--save-baseline")
    project.repeat_stored(6)

    def answer(request):
        conditions = RankConditions(foreign=0.5 * (request.case.batch_size in sizes[:disturbed]))
        return make_launch(request.case, request.round, conditions=conditions)

    project.answer = answer
    loose = project.run("-k", "step_time")
    strict = project.run("-k", "step_time", "--ddp-strict")

    loose.assert_outcomes(passed=5 - disturbed, skipped=disturbed, deselected=25)
    if red:
        strict.assert_outcomes(passed=3, failed=2, deselected=25)
        said = "--ddp-strict: 2 of 5 cases undecided: this machine cannot gate"
        assert said in str(strict.stdout)
    else:
        strict.assert_outcomes(passed=4, skipped=1, deselected=25)


def test_a_suspect_session_that_nothing_is_to_confirm_is_undecided(project):
    """With append it is stored, and the next ones decide it; else it is forgotten every time."""
    project.store(spread=0.02)
    project.answer = project.steps_of(0.0108, 0.012)

    alone = project.run("-k", STEP, "-rs")
    strict = project.run("-k", STEP, "--ddp-strict")
    appended = project.run("-k", STEP, "--ddp-strict", "--save-baseline=append")

    alone.assert_outcomes(skipped=1, deselected=OTHERS)
    assert "SUSPECT: step time" in str(alone.stdout)
    assert strict.ret == ExitCode.UNDECIDED
    appended.assert_outcomes(passed=1, deselected=OTHERS)


@pytest.mark.parametrize(("lacking", "many"), [(3, False), (4, True)])
def test_a_metric_that_is_invalid_in_every_session_is_undecided_by_itself(project, lacking, many):
    """A fifth of the cases may be undecided in a session, and not for ever."""
    path = project.store()
    one = project.cases()[0]

    def busy_lately(baseline):
        case = baseline.cases[one.id]
        later = [
            replace(session, launches=({"peak_memory": 1000.0},))
            for session in case.sessions[-lacking:]
        ]
        case = replace(case, sessions=(*case.sessions[:-lacking], *later))
        return replace(baseline, cases={**baseline.cases, one.id: case})

    BaselineStore(path.parent).update(path.stem, busy_lately)
    project.answer = under(RankConditions(foreign=0.5))

    shown = " ".join(str(project.run("-k", STEP, "--ddp-strict").stdout).split())

    assert ("--ddp-strict: INVALID for 5 sessions in a row" in shown) is many
    line = f"INVALID in a row, so nothing gates it: step time of {ONE} for 5 sessions"
    assert (line in shown) is many


GPU = TINY.replace("tier: cpu", "tier: gpu").replace("[1, 2]", "[1, 4]")


@pytest.mark.parametrize(
    ("arguments", "outcomes"),
    [
        ([], {"passed": 1, "skipped": 1}),
        (["--ddp-strict"], {"passed": 1, "errors": 1}),
        (["--ddp-strict", "--ddp-expect-devices=2"], {"passed": 1, "skipped": 1}),
        (["--ddp-strict", "--ddp-world-sizes=1"], {"passed": 1}),
        (["--ddp-expect-devices=2"], {"passed": 1, "skipped": 1}),
        (["--ddp-expect-devices=4"], {"errors": 2}),
        (["--ddp-expect-devices=1"], {"errors": 2}),
    ],
)
def test_too_few_gpus_skip_a_case_and_an_unexpected_number_fails_it(project, arguments, outcomes):
    project.suite("tiny", GPU)
    project.capacity = make_capacity(make_gpu_machine("NVIDIA H200", "NVIDIA H200"), cores=2)
    key = project.capacity.accelerator_key("gpu")
    project.run("-m", "gpu", "--save-baseline", "--ddp-launches=2")
    assert (project.path / "baselines" / f"{key}.json").exists()

    result = project.run("-m", "gpu", "-k", "structure", *arguments)

    found = result.parseoutcomes()
    found.pop("deselected")
    assert found == outcomes


def test_a_strict_session_fails_if_no_case_of_a_suite_can_run(project):
    project.suite("tiny", GPU.replace("[1, 4]", "[4]"))
    project.capacity = make_capacity(make_gpu_machine("NVIDIA H200", "NVIDIA H200"), cores=2)

    project.run("-m", "gpu", "-k", "structure").assert_outcomes(skipped=1, deselected=5)
    strict = project.run("-m", "gpu", "-k", "structure", "--ddp-strict")

    strict.assert_outcomes(errors=1, deselected=5)
    said = "--ddp-strict: needs 4 CUDA devices, found 2, so it was not measured; leave out what"
    assert said in str(strict.stdout)


def test_a_strict_session_is_undecided_about_a_case_that_needs_more_cores(project):
    """A container that lost a core would else gate the one-rank cases alone, and be green."""
    project.store()
    project.capacity = make_capacity(cores=1)

    loose = project.run("-k", "step_time")
    strict = project.run("-k", "step_time", "--ddp-strict")

    loose.assert_outcomes(passed=1, skipped=1, deselected=11)
    strict.assert_outcomes(passed=1, errors=1, deselected=11)
    assert strict.ret == ExitCode.UNDECIDED
    assert "--ddp-strict: needs 2 cores, 1 per rank, found 1" in str(strict.stdout)


def test_a_strict_session_excuses_what_the_type_of_gpu_cannot_do(project):
    project.suite("tiny", GPU.replace("[1, 4]", "[1]"))
    project.suite(
        "half",
        GPU.replace("[1, 4]", "[1]").replace("suite: tiny", "suite: half") + "precision: bf16\n",
    )
    project.capacity = make_capacity(make_gpu_machine("Tesla V100", compute_capability=(7, 0)))

    done = project.run("-m", "gpu", "-k", "structure", "--ddp-strict", "--save-baseline", "-rs")

    assert done.ret == 0, str(done.stdout)
    assert "bf16 needs compute capability 8.0" in str(done.stdout)


def test_an_unexpected_number_of_gpus_does_not_fail_cpu_cases(project):
    project.store()

    result = project.run("-k", STEP, "--ddp-expect-devices=4")

    result.assert_outcomes(passed=1, deselected=OTHERS)


def test_efficiency_without_a_one_rank_case_is_skipped_with_the_remedy(project):
    project.suite("tiny", TINY.replace("[1, 2]", "[2]"))

    result = project.run("-k", "efficiency", "-rs")

    result.assert_outcomes(skipped=1, deselected=6)
    assert "add 1 to world_sizes" in str(result.stdout)


def test_asserting_a_metric_that_is_not_gated_fails(project):
    (project.path / "test_own.py").write_text(
        "import pytest\n"
        "@pytest.mark.cpu\n"
        f"def test_own(ddp_measure):\n    ddp_measure({ONE!r}).assert_verdict('energy')\n"
    )

    result = project.run("test_own.py")

    result.assert_outcomes(failed=1)
    assert f"{ONE} has no finding for energy; its suite gates step_time, " in str(result.stdout)
