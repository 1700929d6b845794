"""Structure: exactly the same collectives, bytes and buckets on any machine."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.perf


@pytest.mark.ddp_metric("structure")
def test_structure(ddp_measured, assert_verdict):
    """One collective more, or a bucket of another size, is a change of the code."""
    structure = ddp_measured.measurement.launches[0].ranks[0].structure
    ddp_measured.record(
        parameters=structure.parameters,
        collectives_per_step=len(structure.collectives),
        bytes_per_step=sum(collective.bytes for collective in structure.collectives),
    )
    assert_verdict()
