"""Targets: a figure must be what the suite file states, whatever the baseline contains."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.perf


def test_target(ddp_measured, ddp_target, assert_verdict):
    """``ddp_target`` is each target of a case on this accelerator, as in ``target:efficiency``."""
    assert_verdict()
