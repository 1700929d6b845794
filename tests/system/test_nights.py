"""Nights on a simulated machine of 8 GPUs: their stated length, what they measure, what is red."""

from __future__ import annotations

import datetime
import re

import msgspec
import pytest

from ddp_perf.errors import ExitCode
from ddp_perf.session.measure.nights import plan_night
from tests.builders import (
    FakeLauncher,
    make_capacity,
    make_gpu_machine,
    make_launch,
    make_structure,
)
from tests.projects import make_project

GPU = """
suite: {name}
variant: {name}
tier: gpu
workload: mlp
model: {{input_dim: 64, hidden_dim: 64, output_dim: 8}}
core: {core}
world_sizes: [1, 2, 8]
batch_sizes: {batches}
launches: 3
"""
GATED = GPU.format(name="gated", core='["*-b64-*", "*-ws2-b64-*"]', batches=[64])
ROTATING = GPU.format(name="rotating", core=[], batches=[*range(1, 9)])
MONDAY = datetime.date(2026, 11, 23)
STEP_S, OVERHEAD_S = 0.1, 9.0
OTHER = make_structure(collectives=2 * make_structure().collectives)
CORE = {f"mlp-{kind}-b64-gated" for kind in ("none-fp32-ws1", "ddp-fp32-ws2", "ddp-fp32-ws8")}


class Machine:
    """Eight GPUs that play launches. ``slow`` and ``other`` are parts of ids: of the cases that
    take twice as long a step, and of those with more collectives.
    """

    def __init__(self, pytester, monkeypatch):
        self._pytester, self._patch = pytester, monkeypatch
        self.launches = []

    def night(self, day, *arguments, slow="none of them", other="none of them"):
        """Run a night as ci/nightly does, ``day`` days after a Monday."""
        self.launches = []

        def play(request):
            case = request.case
            step_s = STEP_S * (2 if slow in case.id else 1)
            steps = case.schedule.steps_on_gpu(step_s) - case.schedule.warmup
            structure = OTHER if other in case.id else make_structure()
            launch = make_launch(case, request.round, step_s=(step_s,) * steps, structure=structure)
            wall_s = OVERHEAD_S + steps * step_s
            self.launches.append(msgspec.structs.replace(launch, wall_s=wall_s))
            return self.launches[-1]

        capacity = make_capacity(make_gpu_machine(*["NVIDIA A100-SXM4-80GB"] * 8, nvlinks=12))
        date = MONDAY + datetime.timedelta(days=day)
        for name, played in (
            ("plugin.session.find_capacity", lambda: capacity),
            ("plugin.session.tonight", lambda cases, fits: plan_night(cases, fits, date)),
            ("session.measure.machine.ServerLauncher", lambda: FakeLauncher(play)),
        ):
            self._patch.setattr(f"ddp_perf.{name}", played)
        return self._pytester.runpytest_inprocess(
            *("-m", "gpu", "-k", "step_time or structure", "--ddp-expect-devices", "8"),
            *("--ddp-strict", "--ddp-rotate", "--save-baseline=append", "--ddp-budget=0"),
            *arguments,
        )

    @property
    def measured(self):
        return {launch.case_id for launch in self.launches}

    @property
    def wall_s(self):
        return sum(launch.wall_s for launch in self.launches)


@pytest.fixture
def machine(pytester, monkeypatch):
    make_project(pytester, monkeypatch, gated=GATED, rotating=ROTATING)
    return Machine(pytester, monkeypatch)


def test_the_first_line_states_the_length_that_the_launches_then_have(machine):
    first = machine.night(0, "--save-baseline").stdout.str()
    again = machine.night(7).stdout.str()

    assumed = 11 * len(machine.launches)
    assert _first_line(first) == (
        f"ddp: 27 launches of 2 suites, at least {assumed / 60:.0f} min (27 were never timed: 11 s"
        " each is assumed); of them the core 9 (99 s), and part 1 of 7 of the other cases 18"
        " (3 min)"
    )
    (minutes,) = re.findall(r"about (\d+) min; of them", _first_line(again))
    assert int(minutes) == pytest.approx(machine.wall_s / 60, abs=0.6)


def _first_line(output):
    return next(line for line in output.splitlines() if line.startswith("ddp: "))


@pytest.mark.slow
def test_seven_nights_measure_every_case_and_each_of_them_the_core(machine):
    nights = []
    for day in range(7):
        machine.night(day, "--save-baseline")
        nights.append(machine.measured)

    assert all(night >= CORE for night in nights)
    others = [night - CORE for night in nights]
    assert len(set.union(*others)) == 3 * 8 == sum(map(len, others))
    assert max(map(len, others)) == 6  # of 8 batches two share a night


def test_a_case_of_the_core_that_is_slow_is_red(machine):
    machine.night(0, "--save-baseline")

    done = machine.night(7, slow="ws8-b64-")

    assert done.ret == 1
    done.stdout.fnmatch_lines(["*REGRESSION: step time of mlp-ddp-fp32-ws8-b64-gated: 2.000 ×*"])


def test_a_case_that_rotates_and_is_slow_is_reported_and_not_red(machine):
    machine.night(0, "--save-baseline")

    done = machine.night(7, slow="-rotating")

    assert done.ret == 0
    text = " ".join(done.stdout.str().split())
    assert "SUSPECT" in text
    assert "REGRESSION, reported only, since the case rotates over a week" in text


def test_a_case_that_rotates_is_red_by_its_structure(machine):
    machine.night(0, "--save-baseline")

    done = machine.night(7, other="-rotating")

    assert done.ret == 1
    done.stdout.fnmatch_lines(["*REGRESSION: structure of mlp-*-rotating*"])


def test_the_cases_of_the_core_share_the_false_alarm_rate_among_themselves(machine):
    """Step time, tail and memory of each of three cases, and the efficiency of two."""
    done = machine.night(0, "--save-baseline", "-v")

    done.stdout.fnmatch_lines([f"*(of each {100 * 0.01 / (3 * 3 + 2):.3g} %)"])


def test_a_case_that_rotates_begins_its_level_unannounced_if_the_machine_has_sessions(machine):
    assert machine.night(0).ret == ExitCode.UNDECIDED  # a lost file looks like one that never was
    assert machine.night(0, "--save-baseline").ret == 0

    assert machine.night(1).ret == 0
    assert machine.night(8, slow="-rotating").ret == 0
