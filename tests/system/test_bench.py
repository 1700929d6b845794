"""``ci/bench``, cancelled by a SIGTERM to the script, as a CI runner, Slurm or Kubernetes does.

The real script runs with a set-up that only puts a pytest on the path.
"""

from __future__ import annotations

import shutil
import signal
import subprocess

from tests.projects import REPOSITORY

_SETUP = 'root=$(pwd) && export PATH="$root/bin:$PATH"\n'
_PYTEST = """#!/usr/bin/env bash
sleep 600 &
trap 'kill $!; echo "what was measured"; exit 2' TERM
echo measuring
wait
"""


def test_a_cancelled_job_ends_with_the_exit_code_of_pytest(tmp_path):
    for directory in ("ci", "bin"):
        (tmp_path / directory).mkdir()
    shutil.copy(REPOSITORY / "ci" / "bench", tmp_path / "ci")
    (tmp_path / "ci" / "setup.sh").write_text(_SETUP)
    fake = tmp_path / "bin" / "pytest"
    fake.write_text(_PYTEST)
    fake.chmod(0o755)

    with subprocess.Popen(
        ["bash", "ci/bench"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # A shell that runs the tests in the background has them ignore signals.
        preexec_fn=lambda: signal.signal(signal.SIGTERM, signal.SIG_DFL),
    ) as process:
        assert process.stdout.readline() == "measuring\n"
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=60)

    assert (process.returncode, output) == (2, "what was measured\n")
