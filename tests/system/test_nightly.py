"""``ci/nightly`` in an empty environment: its arguments, those of pytest, and its exit code.

The real script runs with a set-up that only puts a pytest on the path.
"""

from __future__ import annotations

import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.projects import TINY

REPOSITORY = Path(__file__).parents[2]
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

    def pytest(self, script):
        path = self.root / "bin" / "pytest"
        path.write_text(script)
        path.chmod(0o755)

    def start(self, *arguments, **variables):
        return subprocess.Popen(
            [
                *("env", "-i", "PATH=/usr/bin:/bin"),
                *(f"{name}={value}" for name, value in variables.items()),
                *(str(self.root / "ci" / "nightly"), *arguments),
            ],
            cwd=self.root.parent,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
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
    assert [line.split("[")[0].strip() for line in lines[:-1]] == [
        "ci/nightly --devices 8",
        "ci/nightly --tier cpu",
    ]
    assert not (nightly.root / "set-up").exists()


@pytest.mark.parametrize("code", range(6))
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
    assert options_of(words) == options_of(nightly.arguments) - {"--benchmark-json"}


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


def test_the_real_pytest_takes_its_arguments(nightly):
    nightly.pytest(REAL.format(python=sys.executable))
    root = nightly.root
    shutil.copytree(REPOSITORY / "tests" / "perf", root / "tests" / "perf")
    (root / "bench_configs").mkdir()
    (root / "bench_configs" / "tiny.yaml").write_text(TINY)
    (root / "pytest.ini").write_text(
        "[pytest]\naddopts = -p ddp_perf.plugin --import-mode=importlib\n"
    )

    done = nightly("--tier", "cpu", "--collect-only", "-q", PYTHONPATH=REPOSITORY)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "test_throughput[mlp-ddp-fp32-ws2-b16]" in done.stdout
    refused = nightly("--tier", "cpu", "--ddp-steps", "0", PYTHONPATH=REPOSITORY)
    assert refused.returncode == pytest.ExitCode.USAGE_ERROR
