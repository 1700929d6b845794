"""Fixtures of traces: a trace of a few events is read like a user's file."""

from __future__ import annotations

import pytest

from ddp_perf.traces.chrome import read_chrome_trace
from ddp_perf.traces.timeline import timeline_of
from tests.unit.traces.kineto import file


@pytest.fixture
def timeline(tmp_path):
    """``timeline(*events, **header)`` returns the timeline of a file with these events."""

    def make(*events, **header):
        path = tmp_path / "trace.json"
        path.write_text(file(*events, **header))
        return timeline_of(read_chrome_trace(path))

    return make
