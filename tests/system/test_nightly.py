"""``ci/nightly`` in an empty environment: its arguments, those of pytest, and its exit code.

The real script runs with a set-up that only puts a pytest on the path.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time

import pytest

from ddp_perf.errors import ExitCode
from ddp_perf.system.lease import lease_directory, machine_lease
from tests.projects import REPOSITORY, TINY

SETUP = """\
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
touch set-up
export PATH="$root/bin:$PATH"
"""
NOTING = """\
#!/usr/bin/env bash
printf '%s\\n' "$@" >arguments
echo "on stdout" && echo "on stderr" >&2
exit "${CODE-0}"
"""
WAITING = """\
#!/usr/bin/env bash
sleep 60 &
trap 'kill $!; echo ended by SIGTERM; exit 2' TERM
echo ready
wait
"""
REAL = """\
#!/usr/bin/env bash
exec {python} -m pytest "$@"
"""


class Nightly:
    def __init__(self, root):
        self.root = root
        (root / "ci").mkdir()
        (root / "bin").mkdir()
        shutil.copy(REPOSITORY / "ci" / "nightly", root / "ci" / "nightly")
        (root / "ci" / "setup.sh").write_text(SETUP)
        self.pytest(NOTING)
        self.variables = {}
        self.prefix = []  # what starts the script

    def pytest(self, script):
        path = self.root / "bin" / "pytest"
        path.write_text(script)
        path.chmod(0o755)

    def start(self, *arguments, **variables):
        return subprocess.Popen(
            [
                *self.prefix,
                *("env", "-i", "PATH=/usr/bin:/bin"),
                *(f"{name}={value}" for name, value in (self.variables | variables).items()),
                *(str(self.root / "ci" / "nightly"), *arguments),
            ],
            cwd=self.root.parent,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # as in a terminal
        )

    def __call__(self, *arguments, **variables):
        with self.start(*arguments, **variables) as process:
            stdout, stderr = process.communicate()
        return subprocess.CompletedProcess(arguments, process.returncode, stdout, stderr)

    @property
    def arguments(self):
        """Return the arguments of pytest."""
        return (self.root / "arguments").read_text().splitlines()


@pytest.fixture
def nightly(tmp_path):
    (tmp_path / "project").mkdir()
    return Nightly(tmp_path / "project")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "state how many GPUs this runner has: --devices N"),
        (["--tier", "gpu"], "state how many GPUs this runner has: --devices N"),
        (["--devices"], "--devices takes a number"),
        (["--devices", "eight"], "--devices takes a number from 1 on, not 'eight'"),
        (["--devices", "0"], "--devices takes a number from 1 on, not '0'"),
        (["--tier"], "--tier takes gpu or cpu"),
        (["--tier", "tpu"], "unknown tier 'tpu' (gpu or cpu)"),
    ],
)
def test_a_wrong_argument_is_refused_with_the_usage_before_anything_is_set_up(
    nightly, arguments, said
):
    done = nightly(*arguments)

    assert done.returncode == 4
    lines = done.stderr.splitlines()
    assert lines[-1] == f"nightly: {said}"
    assert [re.split(r" \[|  ", line.strip())[0] for line in lines[:-1]] == [
        "ci/nightly --devices 8",
        "ci/nightly --tier cpu",
        "ci/nightly --tier cpu --save-baseline",
    ]
    assert not (nightly.root / "set-up").exists()


@pytest.mark.parametrize("code", [0, 1, 3, 4, 5, ExitCode.UNDECIDED, 130, 143])
def test_the_exit_code_is_that_of_pytest(nightly, code):
    assert nightly("--devices", "1", CODE=code).returncode == code


def test_the_gpu_tier_is_gated_strictly_on_the_expected_devices(nightly):
    nightly("--devices", "8", "-k", "mlp and ddp")

    assert nightly.arguments[:6] == [
        *("tests/perf", "-m", "gpu", "--ddp-expect-devices", "8", "--ddp-strict")
    ]
    assert "--save-baseline=append" in nightly.arguments
    assert nightly.arguments[-2:] == ["-k", "mlp and ddp"]


def test_the_cpu_tier_expects_no_devices(nightly):
    nightly("--tier", "cpu")

    assert nightly.arguments[:4] == ["tests/perf", "-m", "perf and cpu", "--ddp-strict"]
    assert "--ddp-expect-devices" not in nightly.arguments


def test_the_command_for_another_project_has_the_options_of_the_script(nightly):
    page = (REPOSITORY / "docs" / "own-workload.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"^\$ (pytest .*--ddp-strict (?:.*\\\n)*.*)$", page, re.MULTILINE)
    words = shlex.split(command.replace("\\\n", " "))
    nightly("--tier", "cpu")

    assert words[:3] == ["pytest", "-m", "perf and cpu"]
    assert "--save-baseline=append" in words
    # Suites that state no core are measured whole every night.
    left_out = {"--ddp-rotate"}
    assert options_of(words) == options_of(nightly.arguments) - left_out


def options_of(words):
    return {word.split("=")[0] for word in words if word.startswith("--")}


def test_the_output_of_pytest_is_shown_and_kept(nightly):
    done = nightly("--devices", "1")

    assert done.stdout == "on stdout\non stderr\n"
    assert (nightly.root / "artifacts" / "nightly" / "output.txt").read_text() == done.stdout


def test_a_cancelled_job_ends_pytest_and_keeps_its_last_output(nightly):
    nightly.pytest(WAITING)

    with nightly.start("--devices", "1") as process:
        ready = process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        rest = process.stdout.read()

    assert (ready, rest) == ("ready\n", "ended by SIGTERM\n")
    assert process.returncode == 2


# ---- with the real pytest and its exit codes ----

IMPATIENT = "import ddp_perf.session.measure.machine as machine; machine._LEASE_PATIENCE_S = 1\n"
# The structure of a step is the same, whatever else runs on the machine.
SMALL = ("--tier", "cpu", "-k", "structure", "--ddp-launches=1", "--ddp-budget=0")


@pytest.fixture
def gate(nightly):
    """``gate(*arguments)`` runs the script with the real pytest in a project with a tiny suite."""
    nightly.pytest(REAL.format(python=sys.executable))
    root = nightly.root
    shutil.copytree(REPOSITORY / "tests" / "perf", root / "tests" / "perf")
    (root / "bench_configs").mkdir()
    (root / "bench_configs" / "tiny.yaml").write_text(TINY)
    (root / "bench_configs" / "many.yaml").write_text(
        TINY.replace("suite: tiny", "suite: many")
        .replace("tier: cpu", "tier: gpu")
        .replace("[16]", "[32]")
    )
    (root / "pytest.ini").write_text(
        "[pytest]\naddopts = -p ddp_perf.plugin --import-mode=importlib\npythonpath = .\n"
    )
    nightly.variables = {
        "PYTHONPATH": f"{REPOSITORY}:{root}",
        "CUDA_VISIBLE_DEVICES": "",
        "DDP_PERF_LEASES": str(lease_directory()),
    }
    return nightly


def test_the_real_pytest_takes_its_arguments(gate):
    done = gate("--tier", "cpu", "--collect-only", "-q")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "test_step_time[mlp-ddp-fp32-ws2-b16]" in done.stdout
    assert gate("--tier", "cpu", "--ddp-steps", "0").returncode == pytest.ExitCode.USAGE_ERROR
    assert gate("--tier", "cpu", "-k", "no_such").returncode == pytest.ExitCode.NO_TESTS_COLLECTED


@pytest.mark.slow
def test_an_announced_first_session_is_green_and_one_whose_steps_do_more_work_is_red(gate):
    unannounced = gate(*SMALL)
    assert unannounced.returncode == ExitCode.UNDECIDED, unannounced.stdout
    assert "next: ./ci/nightly --tier cpu" in unannounced.stdout
    first = gate(*SMALL, "--save-baseline")
    assert first.returncode == 0, first.stdout
    stored = gate.root / "baselines" / "structure" / "tiny.json"
    structures = json.loads(stored.read_text())
    for case in structures["cases"].values():  # as if the code before had sent less
        for collective in case["structure"]["collectives"]:
            collective["bytes"] //= 2
    stored.write_text(json.dumps(structures))

    second = gate(*SMALL)

    assert second.returncode == 1, second.stdout
    assert "REGRESSION" in second.stdout


def test_missing_devices_are_undecided_and_named(gate):
    done = gate("--devices", "2")

    assert done.returncode == ExitCode.UNDECIDED, done.stdout
    assert "--ddp-expect-devices 2: found 0" in done.stdout


def test_a_second_session_at_once_waits_and_is_undecided(gate):
    (gate.root / "impatient.py").write_text(IMPATIENT)

    with machine_lease(patience_s=600, on_wait=print):
        done = gate(*SMALL, "-p", "impatient")

    assert done.returncode == ExitCode.UNDECIDED, done.stdout
    assert "still being measured by" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code", "said"),
    [
        (signal.SIGTERM, 143, "ended by SIGTERM after"),
        (signal.SIGINT, 130, "interrupted after"),
    ],
)
def test_a_session_that_is_ended_in_the_middle_keeps_what_was_measured(gate, number, code, said):
    results = gate.root / "artifacts" / "nightly" / "results.json"

    with gate.start(*SMALL, "--ddp-launches=500") as process:
        while not (results.exists() and json.loads(results.read_text())["suites"]):
            assert process.poll() is None, process.stdout.read()
            time.sleep(0.05)
        process.send_signal(number)
        output = process.stdout.read()

    assert process.returncode == code, output
    assert said in output
    assert said in (results.parent / "output.txt").read_text()
    assert not json.loads(results.read_text())["complete"]


# ---- what fails before pytest, or beside it ----


@pytest.mark.parametrize("line", ["false", "no_such_command", "exit 1"])
def test_a_set_up_that_fails_is_not_red(nightly, line):
    (nightly.root / "ci" / "setup.sh").write_text(f"{SETUP}f() {{ {line}; touch after; }}\nf\n")

    assert nightly("--tier", "cpu").returncode == pytest.ExitCode.INTERNAL_ERROR
    assert not (nightly.root / "after").exists()
    assert not (nightly.root / "arguments").exists()


def test_a_job_that_is_cancelled_during_set_up_ends_by_the_signal(nightly):
    (nightly.root / "ci" / "setup.sh").write_text(f"{SETUP}echo setting up\nsleep 5\n")

    with nightly.start("--tier", "cpu") as process:
        assert process.stdout.readline() == "setting up\n"
        process.send_signal(signal.SIGTERM)

    assert process.returncode in (143, -signal.SIGTERM)
    assert not (nightly.root / "arguments").exists()


def test_artifacts_that_cannot_be_written_are_not_red(nightly):
    (nightly.root / "artifacts").write_text("a file in the place of the directory")

    assert nightly("--tier", "cpu").returncode == pytest.ExitCode.INTERNAL_ERROR


@pytest.mark.slow
@pytest.mark.parametrize("size", ["4k", "32k"], ids=["full at once", "full in the report"])
def test_a_full_disk_is_not_red(gate, size):
    artifacts = gate.root / "artifacts" / "nightly"
    artifacts.mkdir(parents=True)
    mount = f"mount -t tmpfs -o size={size} none {shlex.quote(str(artifacts))}"
    isolated = ["unshare", "--map-root-user", "--mount", "sh", "-c"]
    if shutil.which("unshare") is None or subprocess.call([*isolated, mount]) != 0:
        pytest.skip("this user may not mount a small disk")
    gate.prefix = [*isolated, f'{mount} && exec "$@"', "sh"]

    done = gate(*SMALL)

    assert done.returncode == pytest.ExitCode.INTERNAL_ERROR, done.stdout
    assert "No space left on device" in done.stdout
    assert "Traceback" not in done.stdout
