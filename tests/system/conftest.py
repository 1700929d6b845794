"""Launches of this directory's workloads."""

from __future__ import annotations

from pathlib import Path

import pytest

# Imported here once: pytester removes what a run in this process imported from sys.modules, and
# numpy cannot be imported a second time.
import ddp_perf.session.measure.suite  # noqa: F401
from tests.builders import make_request

WORKLOADS = Path(__file__).parent / "workloads"


@pytest.fixture
def request_of():
    """A function that builds a launch of two ranks of a workload in workloads/."""

    def make(workload, model, **suite):
        patience = {"start_deadline_s": 60, "step_deadline_s": 30}
        return make_request(workload, WORKLOADS, model=model, **{**patience, **suite})

    return make
