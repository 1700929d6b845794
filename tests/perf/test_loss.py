"""Loss: training that is faster because it computes something else, or wrongly, is no gain."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.perf


@pytest.mark.ddp_metric("loss")
def test_loss(ddp_measured, assert_verdict):
    """The losses of steps 1, 2, 4, … from the initial parameters on are those of the baseline."""
    losses = ddp_measured.measurement.launches[0].losses
    ddp_measured.record(**{f"loss_step_{step}": loss for step, loss in losses.items()})
    assert_verdict()
