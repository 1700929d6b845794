"""``ci/gpu-proof`` starts and ends as a user starts it, and names only files that there are."""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
import sys
import tarfile

import pytest

from tests.projects import REPOSITORY


@pytest.mark.slow
def test_doctor_is_proved_without_a_venv_and_the_table_has_every_proof(tmp_path):
    shutil.copytree(REPOSITORY / "ci", tmp_path / "ci")
    shutil.copytree(REPOSITORY / "bench_configs", tmp_path / "bench_configs")
    env = {
        "PATH": os.defpath,
        "PYTHON": sys.executable,
        "PYTHONPATH": str(REPOSITORY),
        "CUDA_VISIBLE_DEVICES": "",
    }

    def gpu_proof(*arguments):
        command = [tmp_path / "ci" / "gpu-proof", *arguments]
        return subprocess.run(command, env=env, capture_output=True, text=True)

    listed, run = gpu_proof("--list"), gpu_proof("--only", "doctor")

    assert listed.returncode == 0, listed.stderr
    assert run.returncode == 1, run.stderr  # nothing is proved without a GPU
    table = (tmp_path / "artifacts/gpu-proof/table.txt").read_text().splitlines()[1:]
    assert [line.split()[0] for line in table] == [
        line.split()[0] for line in listed.stdout.splitlines()
    ]
    assert table[0].split()[:2] == ["doctor", "passed"]
    with tarfile.open(tmp_path / "artifacts/gpu-proof.tar.gz") as archive:
        assert "gpu-proof/doctor/doctor.json" in archive.getnames()
    assert not (tmp_path / ".venv").exists()


def test_every_file_that_a_proof_names_exists(monkeypatch):
    monkeypatch.syspath_prepend(REPOSITORY / "ci")
    proofs = runpy.run_path(str(REPOSITORY / "ci" / "gpu_proof.py"))["PROOFS"]
    words = [word for proof in proofs for word in proof.command]
    paths = [word.rpartition("=")[2] for word in words if ".py" in word or ".yaml" in word]

    assert len(paths) > 8
    assert [path for path in paths if not (REPOSITORY / path).exists()] == []
