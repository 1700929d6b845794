"""The MFU is the share of a GPU's dense peak."""

from __future__ import annotations

import pytest

from ddp_perf.stats.hardware import mfu


def test_mfu_is_one_half_at_half_of_the_peak():
    assert mfu(10**12, 0.004, 500e12) == pytest.approx(0.5)
