"""The result of a self-test is read back; one of another version is refused."""

from __future__ import annotations

import pytest

from ddp_perf.errors import ResultsError
from ddp_perf.selftest.curve import read_power_curve, selftest_json
from ddp_perf.selftest.trials import power_curve
from tests.builders import make_environment
from tests.unit.selftest.selftest_machine import Machine, make_request


def test_what_was_written_is_read(tmp_path):
    request = make_request()
    curve = power_curve(request, Machine().launches(100), make_environment())
    path = tmp_path / "selftest.json"
    path.write_bytes(selftest_json(curve))

    assert read_power_curve(path) == curve


def test_another_version_is_refused_with_the_remedy(tmp_path):
    path = tmp_path / "selftest.json"
    path.write_text('{"schema_version": 3}')

    with pytest.raises(ResultsError, match=r"is 3, this ddp-perf reads 1.*run ddp-perf selftest"):
        read_power_curve(path)


def test_a_missing_file_has_no_curve(tmp_path):
    assert read_power_curve(tmp_path / "selftest.json") is None
