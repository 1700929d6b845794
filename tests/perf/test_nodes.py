"""Nodes: with each_node, none of them is slower than the others, and none fails alone."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.perf


@pytest.mark.ddp_metric("nodes")
def test_nodes(ddp_measured, assert_verdict):
    """Each node launches the case by itself. A slow one is not blamed on the code."""
    ratios = {one.node: one.ratio for one in ddp_measured.finding("nodes").nodes if one.ratio}
    ddp_measured.record(**{f"node_{node}": ratio for node, ratio in ratios.items()})
    assert_verdict()
