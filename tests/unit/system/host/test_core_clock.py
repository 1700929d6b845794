"""Heat and clock from /sys, on machines with and without these files."""

from __future__ import annotations

import pytest

from ddp_perf.system.host.processes import clock_ratio, heat_events


@pytest.fixture
def machine(tmp_path):
    """``machine(core, {file: text})`` writes a core's files and returns the root of its /sys."""

    def write(core, files):
        for name, text in files.items():
            file = tmp_path / f"sys/devices/system/cpu/cpu{core}" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{text}\n")
        return tmp_path

    return write


def test_heat_events_of_the_core_and_its_package_are_counted(machine):
    machine(0, {"thermal_throttle/core_throttle_count": 3})
    root = machine(1, {"thermal_throttle/core_throttle_count": 1})
    machine(1, {"thermal_throttle/package_throttle_count": 7})

    assert heat_events([0], root) == 3
    assert heat_events([0, 1], root) == 11


@pytest.mark.parametrize(
    ("files", "ratio"),
    [
        pytest.param(
            {"cpufreq/scaling_cur_freq": 1_200_000, "cpufreq/base_frequency": 2_400_000}, 0.5,
            id="intel_pstate",
        ),
        pytest.param(
            {"cpufreq/scaling_cur_freq": 3_000_000, "acpi_cppc/nominal_freq": 2500}, 1.2,
            id="amd-pstate",
        ),
        pytest.param({"cpufreq/scaling_cur_freq": 1_200_000}, None, id="no base"),
        pytest.param({"cpufreq/base_frequency": 2_400_000}, None, id="no clock"),
        pytest.param(
            {"cpufreq/scaling_cur_freq": "<unknown>", "cpufreq/base_frequency": 2_400_000}, None,
            id="unknown",
        ),
    ],
)  # fmt: skip
def test_the_clock_is_relative_to_the_base_frequency(machine, files, ratio):
    assert clock_ratio([0], machine(0, files)) == ratio


def test_the_fastest_of_several_cores_counts(machine):
    base = {"cpufreq/base_frequency": 2_000_000}
    machine(0, {"cpufreq/scaling_cur_freq": 800_000, **base})  # idle
    root = machine(1, {"cpufreq/scaling_cur_freq": 1_900_000, **base})

    assert clock_ratio([0, 1, 2], root) == 0.95


def test_a_virtual_machine_reports_neither_heat_nor_clock(tmp_path):
    assert heat_events([0, 1], tmp_path) is None
    assert clock_ratio([0, 1], tmp_path) is None
