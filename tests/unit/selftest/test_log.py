"""The file of a self-test's launches: no launch is lost, and no other file is continued."""

from __future__ import annotations

import contextlib

import msgspec
import pytest

from ddp_perf.errors import ResultsError
from ddp_perf.selftest.trials import open_launches
from tests.builders import make_case, make_environment
from tests.unit.selftest.selftest_machine import make_slowed

CASE, HERE = make_case(), make_environment()
LAUNCHES = [make_slowed(percent, number=i) for i, percent in enumerate([0, 0, 20])]


def open_log(path, case=CASE, environment=HERE):
    return contextlib.closing(open_launches(path, case, environment))


@pytest.fixture
def written(tmp_path):
    with open_log(tmp_path / "launches.jsonl") as log:
        for launch in LAUNCHES:
            log.append(launch)
    return log.path


@pytest.mark.parametrize(
    ("case", "environment", "said"),
    [
        pytest.param(CASE, {"torch": "2.14.0"}, "torch 2.13.0 → 2.14.0", id="torch"),
        pytest.param(CASE, {"commit": "fedcba"}, "commit 0123456789ab → fedcba", id="commit"),
        pytest.param(CASE, {"host": "other"}, "host host → other", id="machine"),
        pytest.param(CASE, {"cuda": "13.0"}, "cuda unset → 13.0", id="new"),
        pytest.param(make_case(id="other"), {}, "case .*-b64 → other", id="case"),
        pytest.param(make_case(batch_size=32), {}, "batch_size 64 → 32", id="work"),
    ],
)
def test_launches_under_other_conditions_are_refused(written, case, environment, said):
    before = written.read_bytes()

    with (
        pytest.raises(ResultsError, match=f"other conditions: {said}; give another --output"),
        open_log(written, case, msgspec.structs.replace(HERE, **environment)),
    ):
        pass

    assert written.read_bytes() == before


def test_the_length_of_a_launch_is_a_condition_but_not_the_number_of_launches(written):
    schedule = CASE.schedule
    more = msgspec.structs.replace(CASE, schedule=msgspec.structs.replace(schedule, launches=9))
    with open_log(written, more) as log:
        assert log.entries == LAUNCHES

    longer = msgspec.structs.replace(CASE, schedule=msgspec.structs.replace(schedule, steps=99))
    with pytest.raises(ResultsError, match="steps 12 → 99"):
        open_log(written, longer)
