"""The self-test on real ranks, and Ctrl-C on the real command."""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import subprocess
import sys

import pytest

from ddp_perf.config.loading import Overrides, load_cases
from ddp_perf.selftest.curve import SelftestOutcome
from ddp_perf.selftest.trials import (
    PERCENTS,
    SelftestRequest,
    percent_of,
    power_curve,
    run_selftest,
)
from ddp_perf.session.measure.experiment import LoggedLaunch
from ddp_perf.system.ledger import Ledger
from tests.builders import make_environment
from tests.projects import REPOSITORY, TINY

SUITE = TINY.replace("[1, 2]", "[2]")


@pytest.fixture
def suite(tmp_path):
    path = tmp_path / "tiny.yaml"
    path.write_text(SUITE)
    return path


@pytest.mark.slow
def test_real_ranks_are_slowed_as_planned_and_a_second_run_continues(launcher, suite, tmp_path):
    (case,) = load_cases([suite], Overrides())
    request = SelftestRequest(case=case, launches=2, alpha=0.001)
    asked = []

    class Noted:
        def launch(self, wanted):
            asked.append([injection.text for injection in wanted.injections])
            return launcher.launch(wanted)

    def go_on(until_there_are):
        def interrupt(launches):
            if launches == until_there_are:
                raise KeyboardInterrupt

        log = Ledger(tmp_path / "launches.jsonl", LoggedLaunch, {})
        with contextlib.closing(log), pytest.raises(KeyboardInterrupt):
            run_selftest(request, log, Noted(), until=math.inf, on_launch=interrupt)
        return log.entries

    first, all_ = go_on(9), go_on(20)

    assert all_[:9] == first
    percents = [percent_of(number, 2) for number in range(20)]
    assert [int(launch.arm) for launch in all_] == percents
    assert asked == [[f"compute:{percent}%"] if percent else [] for percent in percents]
    assert set(percents) == {0, *PERCENTS}
    curve = power_curve(request, all_, make_environment())
    assert curve.measured == 20
    assert curve.conclusion is SelftestOutcome.TOO_SHORT


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code", "said"),
    [
        (signal.SIGINT, 130, "interrupted"),
        (signal.SIGTERM, 143, "ended by SIGTERM"),
    ],
)
def test_a_signal_ends_the_command_with_the_partial_result(suite, tmp_path, number, code, said):
    # A shell that runs the tests in the background has them ignore SIGINT, and so their children.
    heed = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    command = heed + "from ddp_perf.cli.app import app; app()"
    arguments = ["selftest", "--config", suite.name, "--output", "out", "--budget", "1h"]
    with subprocess.Popen(
        [sys.executable, "-c", command, *arguments],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "launch 1 done" in line:
                break
        process.send_signal(number)
        stdout, stderr = process.communicate()

    assert process.returncode == code, stderr
    assert "Traceback" not in stderr
    assert stderr.splitlines()[-1].startswith(f"ddp-perf: {said}")
    assert stderr.splitlines()[-1].endswith("; run the same command again to go on")
    assert "Too short: " in stdout
    header, *launches = (tmp_path / "out" / "launches.jsonl").read_text().splitlines()
    assert json.loads(header)["conditions"]["case"] == "mlp-ddp-fp32-ws2-b16"
    assert f"step time of {len(launches)} launch" in " ".join(stdout.split())
    assert (tmp_path / "out" / "selftest.png").stat().st_size > 10_000
