"""Set-up on a fresh machine: the torch that it installs. It never replaces one.

The real script runs with a python that records each ``pip install`` and does not run it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
CU126 = "torch==2.13.0+cu126 --extra-index-url https://download.pytorch.org/whl/cu126"
# Of every call that set-up makes, what it gets; the rest is asked of the real interpreter.
PYTHON = """\
#!/usr/bin/env bash
case $* in
    "-m venv .venv") mkdir -p .venv/bin site && cp "$0" .venv/bin/python ;;
    "-m pip install"*)
        echo "$*" >>installed
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
"""


@pytest.fixture
def set_up(tmp_path):
    """``set_up(**variables)`` runs the script, and returns pip's arguments and the output."""
    root = tmp_path / "project"
    (root / "ci").mkdir(parents=True)
    for name in ("ci/setup.sh", "ci/requirements.txt", "pyproject.toml"):
        shutil.copy(REPOSITORY / name, root / name)
    (root / "ddp_perf").symlink_to(REPOSITORY / "ddp_perf")
    (tmp_path / "fake").mkdir()
    (tmp_path / "fake" / "sitecustomize.py").write_text(FAKE_GPUS)
    python = tmp_path / "python-of-the-user"
    python.write_text(PYTHON)
    python.chmod(0o755)
    (root / "ci" / "run").write_text("set -euo pipefail\nsource ci/setup.sh\n")

    def run(**variables):
        done = subprocess.run(
            ["bash", "ci/run"],
            cwd=root,
            env={
                "PATH": "/usr/bin:/bin",
                "HOME": str(tmp_path),
                "PYTHON": str(python),
                "REAL_PYTHON": sys.executable,
                "PYTHONPATH": f"{tmp_path / 'fake'}:{REPOSITORY}",
                **variables,
            },
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        log = root / "installed"
        calls = log.read_text().splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        return [call.partition("--disable-pip-version-check ")[2] for call in calls], done.stderr

    return run


def torch_of(calls):
    """Return the arguments of pip for torch, in order."""
    return [
        call.removeprefix("-c ci/requirements.txt ") for call in calls if call.startswith("-c ")
    ]


def test_torch_is_installed_from_the_default_index_without_a_gpu(set_up):
    calls, said = set_up()

    assert torch_of(calls) == ["torch==2.13.0"]
    assert "setup: no torch found, installing torch==2.13.0" in said.splitlines()


def test_torch_for_cuda_12_is_installed_on_a_driver_of_cuda_12(set_up):
    calls, _ = set_up(MACHINE="h200")

    assert torch_of(calls) == [CU126]


def test_the_cpu_tier_is_set_up_if_only_pypi_can_be_reached(set_up):
    calls, said = set_up(MACHINE="h200", UNREACHABLE="download.pytorch.org")

    assert torch_of(calls) == [CU126, "torch==2.13.0"]
    assert "which this machine's GPUs cannot run" in said


def test_an_installed_torch_is_never_replaced(set_up, tmp_path):
    calls, said = set_up(MACHINE="h200", TORCH="/opt/torch")

    assert torch_of(calls) == []
    assert "is what is tested" in said
    site = tmp_path / "project" / "site"
    assert (site / "torch-under-test.pth").read_text() == "/opt/torch\n"


def test_a_second_set_up_installs_nothing(set_up):
    set_up()

    assert set_up() == ([], "")
