"""``ci/bench``: the command that it gives to pytest, and its end when a job is cancelled.

The real script runs with a set-up that only puts a pytest on the path.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess

import pytest

from tests.projects import REPOSITORY

_SETUP = 'root=$(pwd) && export PATH="$root/bin:$PATH"\n'
_WAITING = """#!/usr/bin/env bash
sleep 600 &
trap 'kill $!; echo "what was measured"; exit 2' TERM
echo measuring
wait
"""
_NOTING = '#!/usr/bin/env bash\necho "$DDP_PERF_COMMAND"\n'


@pytest.fixture
def start(tmp_path):
    """``start(script, *arguments)`` starts ci/bench where this script is pytest."""
    for directory in ("ci", "bin"):
        (tmp_path / directory).mkdir()
    shutil.copy(REPOSITORY / "ci" / "bench", tmp_path / "ci")
    (tmp_path / "ci" / "setup.sh").write_text(_SETUP)
    fake = tmp_path / "bin" / "pytest"

    def run(script, *arguments, **variables):
        fake.write_text(script)
        fake.chmod(0o755)
        return subprocess.Popen(
            ["bash", "ci/bench", *arguments],
            cwd=tmp_path,
            env=os.environ | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            # A shell that runs the tests in the background has them ignore signals.
            preexec_fn=lambda: signal.signal(signal.SIGTERM, signal.SIG_DFL),
        )

    return run


def test_a_cancelled_job_ends_with_the_exit_code_of_pytest(start):
    with start(_WAITING) as process:
        assert process.stdout.readline() == "measuring\n"
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=60)

    assert (process.returncode, output) == (2, "what was measured\n")


@pytest.mark.parametrize(
    ("arguments", "command"),
    [([], "./ci/bench"), (["-k", "a b"], r"./ci/bench -k a\ b")],
    ids=["none", "some"],
)
def test_the_command_to_run_again_has_the_arguments_and_no_variable_of_the_environment(
    start, arguments, command
):
    with start(_NOTING, *arguments, arguments=" of another program") as process:
        output, _ = process.communicate(timeout=60)

    assert output == f"{command}\n"
