"""The result of a self-test is read back, and so is one that version 1 wrote (`recorded/`)."""

from __future__ import annotations

from pathlib import Path

from ddp_perf.selftest.result_file import read_power_curve

VERSION_1 = Path(__file__).parent / "recorded" / "selftest_version_1.json"


def test_version_1_has_its_numbers_of_sessions():
    curve = read_power_curve(VERSION_1)

    assert curve is not None
    assert curve.sessions == 8


def test_a_missing_file_has_no_curve(tmp_path):
    assert read_power_curve(tmp_path / "selftest.json") is None
