"""Set-up on a fresh machine: the torch that it installs. It never replaces one.

The real script runs with a python that records each ``pip install`` and does not run it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
CPU = "torch==2.13.0+cpu --extra-index-url https://download.pytorch.org/whl/cpu"
CU126 = "torch==2.13.0+cu126 --extra-index-url https://download.pytorch.org/whl/cu126"
# Of every call that set-up makes, what it gets; the rest is asked of the real interpreter.
PYTHON = """\
#!/usr/bin/env bash
case $* in
    "-m venv .venv") mkdir -p .venv/bin site && cp "$0" .venv/bin/python ;;
    "-m pip install"*)
        echo "$*" >>installed
        if [ -n "${HELD-}" ] && [[ $* == *"-r ci"* ]]; then echo >begun; read -r _ <"$HELD"; fi
        [[ -z "${UNREACHABLE-}" || $* != *"$UNREACHABLE"* ]]
        ;;
    *sysconfig*) echo "$PWD/site" ;;
    *find_spec*) [ -n "${TORCH-}" ] && echo "$TORCH" ;;
    *) exec "$REAL_PYTHON" "$@" ;;
esac
"""
FAKE_GPUS = """\
import os
import pytest
from ddp_perf.core.gpu import GpuMachine
from tests.recordings import FakeNvml, RecordedReader

name = os.environ.get("MACHINE")
machine = RecordedReader.of(name).machine() if name else GpuMachine(gpus=())
FakeNvml(machine).install(pytest.MonkeyPatch())
if "BROKEN" in os.environ:
    import pynvml
    def refuse():
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH)
    pynvml.nvmlInit = refuse
"""


class SetUp:
    """A project with the real script. A call runs it; returns pip's arguments and the output."""

    def __init__(self, directory):
        self.root = directory / "project"
        (self.root / "ci").mkdir(parents=True)
        for name in (
            "ci/setup.sh",
            "ci/requirements.txt",
            "ci/requirements.lock",
            "pyproject.toml",
        ):
            shutil.copy(REPOSITORY / name, self.root / name)
        (self.root / "ddp_perf").symlink_to(REPOSITORY / "ddp_perf")
        (self.root / "ci" / "run").write_text("set -euo pipefail\nsource ci/setup.sh\n")
        fake, python = directory / "fake", directory / "python-of-the-user"
        fake.mkdir()
        (fake / "sitecustomize.py").write_text(FAKE_GPUS)
        python.write_text(PYTHON)
        python.chmod(0o755)
        self._environment = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(directory),
            "PYTHON": str(python),
            "REAL_PYTHON": sys.executable,
            "PYTHONPATH": f"{fake}:{REPOSITORY}",
        }

    def start(self, **variables):
        return subprocess.Popen(
            ["bash", "ci/run"],
            cwd=self.root,
            env=self._environment | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __call__(self, **variables):
        process = self.start(**variables)
        _, said = process.communicate(timeout=300)
        assert process.returncode == 0, said
        log = self.root / "installed"
        calls = log.read_text().splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        return [pip_arguments(call) for call in calls], said


@pytest.fixture
def set_up(tmp_path):
    return SetUp(tmp_path)


def pip_arguments(call):
    return call.partition("--disable-pip-version-check ")[2].removeprefix("--quiet ")


def torch_of(calls):
    """Return the arguments of pip for torch, in order."""
    return [
        call.removeprefix("-c ci/requirements.txt ") for call in calls if call.startswith("-c ")
    ]


def test_a_machine_without_a_gpu_gets_the_build_for_cpus_and_its_size_is_stated(set_up):
    calls, said = set_up()

    assert torch_of(calls) == [CPU]
    assert "setup: no torch found, installing torch==2.13.0+cpu; it downloads 0.2 GB" in said


def test_pypi_has_a_build_where_that_for_cpus_cannot_be_reached(set_up):
    calls, said = set_up(UNREACHABLE="download.pytorch.org")

    assert torch_of(calls) == [CPU, "torch==2.13.0"]
    assert said.splitlines()[-1].endswith("installing torch==2.13.0; it downloads 3 GB")


def test_gpus_that_cannot_be_read_are_no_reason_for_the_build_for_cpus(set_up):
    calls, _ = set_up(BROKEN="1")

    assert torch_of(calls) == ["torch==2.13.0"]


def test_torch_for_cuda_12_is_installed_on_a_driver_of_cuda_12(set_up):
    calls, _ = set_up(MACHINE="h200")

    assert torch_of(calls) == [CU126]


def test_the_cpu_tier_is_set_up_if_only_pypi_can_be_reached(set_up):
    calls, said = set_up(MACHINE="h200", UNREACHABLE="download.pytorch.org")

    assert torch_of(calls) == [CU126, "torch==2.13.0"]
    assert "which the GPUs of this machine cannot run" in said


def test_an_installed_torch_is_never_replaced(set_up, tmp_path):
    calls, said = set_up(MACHINE="h200", TORCH="/opt/torch")

    assert torch_of(calls) == []
    assert "is what is tested" in said
    site = tmp_path / "project" / "site"
    assert (site / "torch-under-test.pth").read_text() == "/opt/torch\n"


def test_a_second_set_up_installs_nothing(set_up):
    set_up()

    assert set_up() == ([], "")


def test_an_activated_environment_is_not_made_anew(set_up, tmp_path):
    tools, activated = tmp_path / "tools", set_up.root / ".venv" / "bin"
    tools.mkdir()
    (tools / "python3").symlink_to(tmp_path / "python-of-the-user")
    set_up(PYTHON="", PATH=f"{tools}:/usr/bin:/bin")
    (activated / "python3").symlink_to(tmp_path / "python-of-the-user")

    assert set_up(PYTHON="", PATH=f"{activated}:{tools}:/usr/bin:/bin") == ([], "")


def test_a_disk_without_locks_is_used_without(set_up, tmp_path):
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "flock").write_text(
        "#!/bin/sh\necho flock: 9: Function not implemented >&2\nexit 71\n"
    )
    (tools / "flock").chmod(0o755)

    calls, said = set_up(PATH=f"{tools}:/usr/bin:/bin")

    assert torch_of(calls) == [CPU]
    assert WAITING not in said


def test_a_set_up_that_was_cut_off_is_begun_again(set_up):
    set_up()
    requirements = set_up.root / "ci" / "requirements.txt"
    before = requirements.read_text()
    requirements.write_text("other==1\n")
    done = set_up.start(UNREACHABLE="requirements.lock")
    done.communicate(timeout=300)
    assert done.returncode != 0
    requirements.write_text(before)
    (set_up.root / "installed").unlink()

    assert set_up()[0]


# ---- several jobs of one checkout ----

WAITING = "setup: another job of this checkout makes or uses .venv; waiting until it ends\n"


@pytest.fixture
def held(set_up):
    """A fifo, which pip or a job reads: it waits until a line is written."""
    os.mkfifo(set_up.root / "held")
    return set_up.root / "held"


def test_two_first_jobs_make_one_environment(set_up, held):
    os.mkfifo(set_up.root / "begun")
    first = set_up.start(HELD=str(held))
    (set_up.root / "begun").read_text()
    second = set_up.start()
    assert second.stderr.readline() == WAITING

    held.write_text("go on\n")
    assert [job.communicate(timeout=300) and job.returncode for job in (first, second)] == [0, 0]
    calls = (set_up.root / "installed").read_text().splitlines()
    assert len(torch_of(map(pip_arguments, calls))) == 1


def test_an_environment_is_not_changed_while_a_job_uses_it(set_up, held):
    """The job is a program that has replaced the shell, as pytest does."""
    set_up()
    job = set_up.root / "ci" / "run"
    usual = job.read_text()
    job.write_text(f"{usual}echo measuring\nexec head -n 1 {held}\n")
    measuring = set_up.start()
    assert measuring.stdout.readline() == "measuring\n"
    job.write_text(usual)
    assert set_up() == ([], "")  # beside it
    (set_up.root / "ci" / "requirements.txt").write_text("other==1\n")
    changing = set_up.start()
    assert changing.stderr.readline() == WAITING
    assert not (set_up.root / "installed").exists()

    held.write_text("go on\n")
    assert [one.communicate(timeout=300) and one.returncode for one in (measuring, changing)] == [
        0,
        0,
    ]
    assert (set_up.root / "installed").exists()
