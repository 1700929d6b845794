"""The plugin in a project: refusals, skips, failures and messages."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from ddp_perf.core.launch import LaunchResult
from ddp_perf.errors import ExitCode
from tests.projects import TINY, make_project

WORKLOADS = Path(__file__).parent / "workloads"

CPU_SUITE = TINY + "price_per_gpu_hour: 3\n"
GPU_SUITE = CPU_SUITE.replace("tier: cpu", "tier: gpu").replace("suite: tiny", "suite: big")


@pytest.fixture
def project(pytester, monkeypatch):
    """A project with the suite's own tests and one small suite file of each tier."""
    return make_project(pytester, monkeypatch, tiny=CPU_SUITE, big=GPU_SUITE)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("launches: 2", "launchs: 2"), "tiny.yaml: launchs: unknown field; did you mean"),
        (("steps: 8", "steps: eight"), "tiny.yaml: steps: expected a whole number, got a text"),
        (("steps: 8", "steps: 0"), "tiny.yaml: steps: expected a whole number >= 1"),
        (("warmup: 2", "warmup: 8"), "tiny.yaml: warmup: 8 warm-ups leave nothing"),
        (("[16]", "[]"), "tiny.yaml: batch_sizes: expected a list of length >= 1"),
        (("[1, 2]", "[2, 2]"), "tiny.yaml: world_sizes: 2 is listed twice"),
        (("workload: mlp", "workload: mlpp"), "did you mean 'mlp'?"),
        (("workload: mlp", "workload: nowhere:build"), "no module named 'nowhere'"),
    ],
)
def test_a_bad_suite_file_is_a_usage_error(project, change, says):
    path = project.path / "bench_configs" / "tiny.yaml"
    path.write_text(path.read_text().replace(*change))
    result = project.runpytest("-m", "cpu")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert says in result.stderr.str()
    assert "Traceback" not in result.stderr.str()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--save-baseline=always"], "unknown mode 'always'"),
        (["--save-baseline=accept"], "needs --ddp-reason"),
        (["--ddp-config", "bench_configs/tinny.yaml"], "did you mean 'tiny.yaml'?"),
        (["--ddp-world-sizes", "0"], "0 leaves nothing to run"),
        (["--ddp-batch-sizes", "a"], "'a' is not a whole number"),
        (["--ddp-steps", "2"], "2 warm-ups of 2 steps leave nothing to measure"),
        (["--ddp-env", "OMP_NUM_THREADS"], "is not of the form NAME=VALUE"),
        (["--ddp-json", "nowhere/results.json"], "there is no directory"),
    ],
)
def test_a_bad_option_is_a_usage_error(project, arguments, says):
    result = project.runpytest("-m", "cpu", *arguments)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert says in result.stderr.str()


def test_without_gpus_every_item_is_skipped_and_the_summary_says_so(project):
    result = project.runpytest("-m", "gpu")
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(
        ["ddp: nothing was measured: *needs 1 CUDA device, found 0*", "*skipped*"]
    )
    outcomes = result.parseoutcomes()
    assert outcomes.keys() == {"skipped", "deselected"}


@pytest.mark.parametrize(
    ("option", "says", "code"),
    [
        ("--ddp-expect-devices=2", "--ddp-expect-devices 2: found 0", 1),
        (
            "--ddp-strict",
            "--ddp-strict: needs 1 CUDA device, found 0, so it was not measured",
            ExitCode.UNDECIDED,
        ),
    ],
)
def test_the_gate_fails_if_expected_gpus_are_missing(project, option, says, code):
    result = project.runpytest("-m", "gpu", option)
    assert result.ret == code
    assert says in result.stdout.str()
    assert result.parseoutcomes().keys() == {"errors", "deselected"}


@pytest.mark.usefixtures("played_ranks")
def test_a_machine_too_small_for_one_case_skips_only_that_case(project):
    result = project.runpytest(
        "-m", "cpu", "-k", "structure", "--ddp-world-sizes", "1,512", "--save-baseline"
    )
    result.stdout.fnmatch_lines(["*2 skipped*"])
    assert (
        "needs 512 cores, 1 per rank, found"
        in project.runpytest(
            "-m", "cpu", "-rs", "-k", "structure and ws512", "--ddp-world-sizes", "1,512"
        ).stdout.str()
    )


def test_under_xdist_timed_tests_are_refused_with_the_remedy(project):
    result = project.runpytest("-m", "cpu", "-n", "2", "-p", "no:benchmark")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert "run them without -n" in result.stdout.str()


@pytest.mark.usefixtures("played_ranks")
def test_a_case_without_a_baseline_is_red_and_names_the_remedy(project):
    result = project.runpytest("-m", "cpu", "--ddp-launches", "1")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*/cpu-*.json has no such case; --save-baseline records it"])


@pytest.mark.parametrize("text", ["{", '{"schema_version": 99}', "[]"])
def test_a_broken_baseline_is_refused_before_anything_is_launched(project, text):
    from ddp_perf.system.host.host import cpu_slug

    path = project.path / "baselines" / f"{cpu_slug()}.json"
    path.write_text(text)
    result = project.runpytest("-m", "cpu", "--save-baseline=accept", "--ddp-reason", "r")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert path.name in result.stderr.str()
    assert "ddp: tiny" not in result.stdout.str()
    assert path.read_text() == text


def test_a_failing_rank_is_red_and_the_next_case_runs(project):
    shutil.copy(WORKLOADS / "faulty.py", project.path)
    path = project.path / "bench_configs" / "tiny.yaml"
    text = path.read_text().replace("workload: mlp", "workload: faulty:build")
    text = text.replace("input_dim: 64, hidden_dim: 64, output_dim: 8", "fault: raise, at_step: 4")
    path.write_text(text)
    results = project.path / "results.json"
    result = project.runpytest(
        *("-m", "cpu", "-k", "structure", "--ddp-budget=0"),  # never more launches
        *("--save-baseline", "--ddp-json", results),
    )
    result.assert_outcomes(errors=1, skipped=1, deselected=22)
    result.stdout.fnmatch_lines(["*ws2*: launch 1: rank 1: ValueError: the data are broken"])
    cases = json.loads(results.read_text())["suites"][0]["measurements"]
    launches = {case_id: len(case["launches"]) for case_id, case in cases.items()}
    assert list(launches.values()) == [2, 0]  # one rank is never rank 1: it ran whole


def test_all_measurements_are_in_the_results_and_in_junit(project):
    results, junit = project.path / "results.json", project.path / "junit.xml"
    bench = project.path / "bench.json"
    (project.path / "test_own.py").write_text(
        "import pytest\n\n\n@pytest.mark.perf\ndef test_steps(ddp_case, worker_clock, benchmark):\n"
        "    benchmark.pedantic(worker_clock.next_step, rounds=worker_clock.steps)\n"
    )
    project.runpytest(
        *("-m", "cpu", "--save-baseline", "--ddp-budget=0", "--ddp-json", results),
        *("--junitxml", junit, "--benchmark-json", bench),
    )
    suite = json.loads(results.read_text())["suites"][0]
    case = suite["measurements"]["mlp-ddp-fp32-ws2-b16"]
    steps = [msgspec.convert(launch, LaunchResult).step_s for launch in case["launches"]]
    assert [len(launch) % 6 for launch in steps] == [0, 0]  # a busy machine adds steps
    text = junit.read_text()
    for name in ("throughput_samples_per_s", "speedup", "scaling_overhead_ms", "p95_step_ms"):
        assert f'name="{name}"' in text
    cost = suite["costs"]["mlp-ddp-fp32-ws2-b16"]
    assert f'name="cost_per_million_samples" value="{cost["per_million"]}"' in text
    assert f'name="cost_efficiency" value="{cost["efficiency"]}"' in text
    # pytest-benchmark reads the same steps, in order, to the precision of a running sum.
    recorded = {
        entry["param"]: entry["stats"]["data"]
        for entry in json.loads(bench.read_text())["benchmarks"]
    }
    # The other tier has a case of this id too, so the suite's name is part of the item's.
    assert recorded["tiny-mlp-ddp-fp32-ws2-b16"] == pytest.approx([s for row in steps for s in row])


@pytest.mark.usefixtures("played_ranks")
def test_a_results_file_that_cannot_be_written_fails_the_session(project, monkeypatch):
    def full(path, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("ddp_perf.session.result.replace_file", full)
    result = project.runpytest(
        "-m", "cpu", "-k", "structure", "--save-baseline", "--ddp-json", "results.json"
    )
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert "cannot be written: No space left on device" in result.stdout.str()


def test_help_explains_every_option_in_its_own_group(project):
    text = project.runpytest("--help").stdout.str()
    group = text[text.index("performance regression of data-parallel training") :]
    for option in ("--ddp-config", "--save-baseline", "--ddp-strict", "--ddp-env", "--ddp-reason"):
        assert option in group


def test_importing_the_plugin_imports_nothing_heavy(project):
    heavy = {"torch", "numpy", "scipy", "altair", "rich", "sqlalchemy", "typer"}
    script = f"import sys, ddp_perf.plugin; sys.exit(sorted({heavy} & sys.modules.keys()) or 0)"
    assert project.run(sys.executable, "-c", script).ret == 0


def test_a_suite_whose_launches_all_failed_is_not_measured_again_for_each_item(project):
    shutil.copy(WORKLOADS / "faulty.py", project.path)
    path = project.path / "bench_configs" / "tiny.yaml"
    text = path.read_text().replace("workload: mlp", "workload: faulty:build")
    model = "fault: raise, fault_rank: 0, at_step: 1"
    path.write_text(text.replace("input_dim: 64, hidden_dim: 64, output_dim: 8", model))
    result = project.runpytest("-m", "cpu", "-k", "structure or memory")
    result.assert_outcomes(errors=4, deselected=20)
    assert result.stdout.str().count("ddp: tiny: 4 launches") == 1


@pytest.mark.slow
def test_a_baseline_of_one_launch_is_not_accepted(project):
    path = project.path / "bench_configs" / "tiny.yaml"
    path.write_text(path.read_text() + "tolerances: {step_time: 0.9}\n")  # however busy it is
    project.runpytest("-m", "cpu", "-k", "structure", "--save-baseline")
    path.write_text(path.read_text().replace("hidden_dim: 64", "hidden_dim: 32"))
    accept = ("--save-baseline=accept", "--ddp-reason", "meant")
    # One launch is no baseline: the structure is accepted, and the times are not.
    result = project.runpytest("-m", "cpu", "-k", "structure", "--ddp-launches=1", *accept)
    result.assert_outcomes(skipped=2, deselected=22)
    assert "not stored: one launch has no spread" in result.stdout.str()
    result = project.runpytest("-m", "cpu", "-k", "step_time", "--ddp-launches=1", *accept)
    result.assert_outcomes(failed=2, deselected=22)


@pytest.fixture
def amid_launches(project):
    """A session of 1,000 launches after its second round, and the paths of its results."""
    results, junit = project.path / "results.json", project.path / "junit.xml"
    process = project.popen(
        [
            *(sys.executable, "-m", "pytest", "-m", "cpu", "--ddp-launches", "500"),
            *("--ddp-json", results, "--junitxml", junit, "-k", "structure"),
        ],
        stdin=subprocess.DEVNULL,
        # A shell that runs the tests in the background has them ignore it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    _await_launches(process, results, 6)
    yield process, results, junit
    process.kill()
    process.communicate()


def _await_launches(process, results, launches):
    """Return when the results file has so many launches. It is written after every round."""
    written = 0
    while written < launches:
        assert process.poll() is None, process.stdout.read()
        time.sleep(0.05)
        suites = json.loads(results.read_text())["suites"] if results.exists() else []
        cases = [case for suite in suites for case in suite["measurements"].values()]
        written = sum(len(case["launches"]) for case in cases)


def test_an_interrupted_session_keeps_what_was_measured_and_says_it_is_not_all(amid_launches):
    process, results, _ = amid_launches

    process.send_signal(signal.SIGINT)

    output, _ = process.communicate(timeout=60)
    assert process.returncode == pytest.ExitCode.INTERRUPTED, output.decode()
    data = json.loads(results.read_text())
    assert not data["complete"]
    cases = data["suites"][0]["measurements"].values()
    assert all(len(case["launches"]) >= 2 for case in cases)


@pytest.mark.slow
def test_sigterm_ends_a_session_as_an_interrupt_does_and_is_named(amid_launches):
    process, results, junit = amid_launches

    process.send_signal(signal.SIGTERM)

    output, _ = process.communicate(timeout=60)
    assert process.returncode == pytest.ExitCode.INTERRUPTED
    (launches,) = re.findall(
        r"Exit: ended by SIGTERM after (\d+) of 1000 launches of tiny", output.decode()
    )
    data = json.loads(results.read_text())
    assert not data["complete"]
    cases = data["suites"][0]["measurements"].values()
    assert sum(len(case["launches"]) for case in cases) == int(launches) >= 6
    assert "<testsuite " in junit.read_text()
    assert b"Traceback" not in output


@pytest.mark.slow
def test_a_second_sigterm_ends_a_session_at_once(project):
    """A hook hangs after the first SIGTERM, like a disk that does not answer."""
    project.makeconftest(
        """
        import signal, sys

        def pytest_keyboard_interrupt(excinfo):
            print("ending", flush=True)
            signal.pause()
        """
    )
    process = project.popen(
        [
            *(sys.executable, "-m", "pytest", "-s", "-m", "cpu", "-k", "structure"),
            *("--ddp-launches", "500", "--ddp-json", "results.json"),
        ],
        stdin=subprocess.DEVNULL,
    )
    _await_launches(process, project.path / "results.json", 6)
    process.send_signal(signal.SIGTERM)
    for line in process.stdout:
        if b"ending" in line:
            break
    process.send_signal(signal.SIGTERM)

    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGTERM
