"""Work: a step does what is stored: the same operations, collectives, memory and calls."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.work


def test_work(ddp_counted):
    """One clone or one host read more is red, and its line is named, on any machine."""
    ddp_counted.assert_verdict()
