"""The number of steps that the measurement of a script needs."""

from __future__ import annotations

import msgspec
import pytest

from ddp_perf.core.launch import LaunchRequest, Profiling
from ddp_perf.worker.script.measure import needed_steps
from tests.unit.worker.script.scripts import make_script_case


@pytest.mark.parametrize(
    ("tier", "traced", "needed"),
    [
        ("cpu", None, 3 + 2 + 8),  # settled, counted, timed
        ("cpu", 2, 3 + 2 + 8 + 1 + 2),  # the profiler starts up in one more
        ("gpu", None, 3 + 2 + 3 * 10 + 1 + 8),  # three windows of a steady step, and one step
    ],
)
def test_the_fewest_steps_are_known_before(tmp_path, tier, traced, needed):
    request = LaunchRequest(case=make_script_case(tier=tier), round=0)
    if traced is not None:
        profiling = Profiling(steps=traced, directory=str(tmp_path))
        request = msgspec.structs.replace(request, profiling=profiling)

    assert needed_steps(request) == needed
