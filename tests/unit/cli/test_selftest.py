"""``ddp-perf selftest``: its output, files and exit codes, with a fake launcher."""

from __future__ import annotations

import contextlib
import json

import msgspec
import pytest
import yaml
from typer.testing import CliRunner

from ddp_perf.cli.app import app
from tests.builders import (
    COLLECTIVES,
    FakeLauncher,
    make_capacity,
    make_failure,
    make_gpu_machine,
)
from tests.unit.selftest.selftest_machine import Machine

SUITE = """
suite: {name}
tier: {tier}
workload: mlp
model: {{input_dim: 16, hidden_dim: 32, output_dim: 8}}
world_sizes: [1, 2, 4]
batch_sizes: [64, 32]
steps: 12
warmup: 2
launches: 5
tolerances: {{step_time: 0.05}}
"""


class Command:
    """The command on a fake machine, whose launches each take two seconds of a fake clock."""

    def __init__(self, directory, monkeypatch):
        self.directory = directory
        self.answer = Machine().answer
        self.capacity = make_capacity()
        self.waited = []
        self.asked = []
        self._now = 0.0
        monkeypatch.chdir(directory)
        monkeypatch.setattr("time.monotonic", lambda: self._now)
        monkeypatch.setattr("ddp_perf.cli.selftest.find_capacity", lambda: self.capacity)
        monkeypatch.setattr("ddp_perf.cli.selftest.ServerLauncher", self._launcher)
        monkeypatch.setattr("ddp_perf.session.measure.machine.machine_lease", self._lease)

    def __call__(self, *arguments):
        wide = {"COLUMNS": "200"}  # where a line breaks must not depend on the processor's name
        return CliRunner().invoke(app, ["selftest", *map(str, arguments)], env=wide)

    def suite(self, name="quick", tier="cpu"):
        path = self.directory / "bench_configs" / f"{name}.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(SUITE.format(name=name, tier=tier))
        return path

    def report(self, output="artifacts/selftest"):
        return json.loads((self.directory / output / "selftest.json").read_text())

    def _launcher(self):
        def timed(request):
            self._now += 2.0
            self.asked.append(request)
            return self.answer(request)

        return FakeLauncher(timed)

    @contextlib.contextmanager
    def _lease(self, **options):
        self.waited.append(options["patience_s"])
        self.leased = options["gpus"]
        yield


@pytest.fixture
def selftest(tmp_path, monkeypatch):
    command = Command(tmp_path, monkeypatch)
    command.suite()
    return command


def test_a_machine_that_can_gate_exits_with_0_and_writes_three_files(selftest):
    done = selftest("--budget", "15m")

    assert done.exit_code == 0, done.output
    output = selftest.directory / "artifacts" / "selftest"
    names = ["launches.jsonl", "selftest.json", "selftest.png"]
    assert sorted(path.name for path in output.iterdir()) == names
    written = ", ".join(f"artifacts/selftest/{name}" for name in names)
    assert done.stdout.endswith(f"written: {written}\n")
    assert "this gate finds a slow-down of" in unwrapped(done)
    assert selftest.report()["conclusion"] == "CAN_GATE"
    assert selftest.report()["curve"]["alpha"] == pytest.approx(0.01 / 18)  # 2 × 4 and 2 × 5
    assert len(selftest.asked) == 450


@pytest.mark.parametrize(
    ("machine", "code", "said"),
    [
        pytest.param(
            Machine(launch=0.002, level=lambda n: 1.002**n),
            1,
            "too many false alarms here",
            id="drifts",
        ),
        pytest.param(Machine(launch=0.2), 75, "This machine cannot gate", id="noisy"),
        pytest.param(Machine(responds=0), 75, "This machine cannot gate", id="deaf"),
    ],
)
def test_a_machine_that_cannot_gate_is_red_or_undecided(selftest, machine, code, said):
    selftest.answer = machine.answer

    done = selftest("--budget", "15m")

    assert done.exit_code == code
    assert said in unwrapped(done)


def test_too_short_a_budget_is_undecided_and_prints_the_time_needed(selftest):
    done = selftest("--budget", "1m")

    assert done.exit_code == 75
    assert "About 230 more launches are needed, 8 min; run the command again" in " ".join(
        done.stdout.split()
    )


def unwrapped(done):
    """Return the output without line breaks, which depend on the processor's name."""
    return " ".join(done.stdout.split())


def test_a_second_selftest_continues_the_first(selftest):
    selftest("--budget", "1m")
    done = selftest("--budget", "14m")

    assert done.exit_code == 0, done.output
    assert [request.round for request in selftest.asked] == list(range(450))
    assert selftest.report()["curve"]["points"][0]["launches"] > 100


def test_an_interrupted_selftest_prints_its_result_and_can_continue(selftest):
    def interrupted(request):
        if request.round == 300:
            raise KeyboardInterrupt
        return Machine().answer(request)

    selftest.answer = interrupted
    done = selftest("--budget", "15m")

    assert done.exit_code == 130
    assert "step time of 300 launches" in unwrapped(done)
    assert done.stderr.splitlines()[-1] == (
        "ddp-perf: interrupted; run the same command again to go on"
    )
    selftest.answer = Machine().answer
    assert "step time of 330 launches" in unwrapped(selftest("--budget", "1m"))


def test_a_failed_launch_is_reported_by_rank_and_finished_launches_stay(selftest):
    def failing(request):
        if request.round == 20:
            return make_failure(request.case, 20, detail="exited with code 3", output="its last")
        return Machine().answer(request)

    selftest.answer = failing
    done = selftest("--budget", "15m")

    assert done.exit_code == 75
    assert "launch 21: rank 1: exited with code 3" in done.stderr
    assert "its last" in done.stderr
    assert "step time of 20 launches" in unwrapped(done)


def test_progress_is_printed_on_stderr(selftest):
    done = selftest("--budget", "5m")

    lines = done.stderr.splitlines()
    assert lines[0] == "ddp-perf: launch 1 done, 5 min left"
    assert lines[-1].endswith("left")
    assert len(lines) == 5  # one a minute
    assert "left" not in done.stdout


def test_selftest_measures_the_smallest_case_of_several_ranks(selftest):
    selftest("--budget", "1m")

    (case,) = {request.case.id for request in selftest.asked}
    assert case == "mlp-ddp-fp32-ws2-b32"
    assert selftest.report()["curve"]["launches"] == 5


def test_selftest_measures_one_rank_if_there_is_one_core(selftest):
    selftest.capacity = make_capacity(cores=1)

    selftest("--budget", "1m", "--launches", "3")

    (case,) = {request.case.id for request in selftest.asked}
    assert case == "mlp-none-fp32-ws1-b32"
    assert selftest.report()["curve"]["launches"] == 3


@pytest.mark.parametrize(
    ("gpus", "measured"), [((), "quick"), (("H200", "H200"), "another")], ids=["none", "two"]
)
def test_selftest_prefers_a_suite_for_gpus_if_there_are_gpus(selftest, gpus, measured):
    selftest.suite("another", "gpu")
    selftest.capacity = make_capacity(make_gpu_machine(*gpus))

    selftest("--budget", "1m")

    assert selftest.report()["curve"]["suite"] == measured


def test_selftest_accepts_a_suite_and_an_output_directory(selftest):
    path = selftest.suite("other")

    selftest("--budget", "1m", "--config", path, "--output", "here")

    curve = selftest.report("here")["curve"]
    assert (curve["suite"], curve["false_alarm_rate"]) == ("other", 0.01)
    assert curve["alpha"] == pytest.approx(0.01 / 18)


def test_selftest_leases_the_machine(selftest):
    selftest("--budget", "1m")

    assert selftest.waited == [600]


def test_on_gpus_the_first_case_of_the_core_is_measured_and_the_time_that_decides_is_stated(
    selftest,
):
    selftest.capacity = make_capacity(make_gpu_machine("NVIDIA H200", "NVIDIA H200"))
    for name in ("first", "second"):
        path = selftest.suite(name, "gpu")
        core = '["*-b32-second"]' if name == "second" else "[]"
        path.write_text(f"{path.read_text()}variant: {name}\ncore: {core}\n")

    done = selftest("--budget", "1m")

    assert {request.case.id for request in selftest.asked} == {"mlp-ddp-fp32-ws2-b32-second"}
    # The one-rank case of its scaling is of the core, too; no CPU time is gated on GPUs.
    assert selftest.report()["curve"]["alpha"] == pytest.approx(0.01 / (3 + 4))
    assert done.stderr.splitlines()[0] == (
        "ddp-perf: mlp-ddp-fp32-ws2-b32-second of second: the 260 launches that show what the gate"
        " finds take about 48 min; the budget is 60 s, and the same command continues"
    )


def test_selftest_leases_every_gpu(selftest):
    machine = make_gpu_machine("NVIDIA H200", "NVIDIA H200")
    selftest.capacity = make_capacity(machine)
    selftest.suite("another", "gpu")

    selftest("--budget", "1m")

    assert selftest.leased == machine.gpus


def refused(done, selftest):
    """Return the only line on stderr, after a check that nothing was launched."""
    assert done.exit_code == 4, done.output
    assert isinstance(done.exception, SystemExit)
    assert done.stdout == ""
    assert selftest.asked == []
    (line,) = done.stderr.splitlines()
    return line


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(["--budget", "10"], "--budget: '10' is not a duration above 0", id="no unit"),
        pytest.param(["--budget", "0s"], "as in 90s, 10m or 1h", id="no time"),
        pytest.param(["--launches", "0"], "--launches", id="no launch"),
        pytest.param(["--config", "qick.yaml"], "qick.yaml: no such suite file", id="no file"),
        pytest.param(["--bugdet", "1m"], "--bugdet", id="unknown option"),
    ],
)
def test_a_wrong_argument_is_refused_in_one_line(selftest, arguments, said):
    assert said in refused(selftest(*arguments), selftest)


def test_a_directory_without_suites_is_refused_with_the_remedy(selftest):
    (selftest.directory / "bench_configs" / "quick.yaml").unlink()

    assert "bench_configs: there is no suite file; name one with --config" in refused(
        selftest(), selftest
    )


def test_selftest_needs_a_suite_that_trains(selftest):
    path = selftest.directory / "bench_configs" / "a_links.yaml"  # before the other, by name
    path.write_text(yaml.safe_dump(COLLECTIVES))

    assert refused(selftest("--config", path), selftest).endswith(
        "only a step that trains can be slowed; name another suite"
    )
    selftest("--budget", "1m")
    assert selftest.report()["curve"]["suite"] == "quick"


def test_selftest_is_refused_if_no_case_can_run_here(selftest):
    path = selftest.suite("large", "gpu")

    line = refused(selftest("--config", path), selftest)

    assert line.endswith("large.yaml: mlp-none-fp32-ws1-b64 needs 1 CUDA device, found 0")


def test_a_session_may_be_one_launch(selftest):
    done = selftest("--budget", "5m", "--launches", "1")

    assert done.exit_code == 0
    assert "with 1 launch, this gate finds" in unwrapped(done)


def test_launches_of_another_case_are_refused(selftest):
    selftest("--budget", "1m")
    selftest.asked.clear()
    selftest.capacity = make_capacity(cores=1)

    line = refused(selftest("--budget", "1m"), selftest)

    assert "case mlp-ddp-fp32-ws2-b32 → mlp-none-fp32-ws1-b32" in line
    assert "give another --output, or delete the file" in line


def test_an_output_that_is_a_file_is_refused(selftest):
    (selftest.directory / "taken").write_text("")

    assert "cannot be written" in refused(selftest("--output", "taken"), selftest)


def test_a_torch_for_a_newer_cuda_than_the_drivers_is_refused_before_any_launch(selftest):
    machine = msgspec.structs.replace(make_gpu_machine("Tesla T4", "Tesla T4"), cuda_driver="11.4")
    selftest.capacity = make_capacity(machine)
    suite = selftest.suite("big", tier="gpu")

    done = selftest("--config", suite)

    assert done.exit_code == 4
    assert "torch is built for CUDA 12.8, and NVML reports a driver for CUDA 11.4" in done.stderr
    assert selftest.asked == []
