"""Fixtures: a baseline store in its own directory."""

from __future__ import annotations

import pytest

from ddp_perf.baselines.store import BaselineStore

KEY = "cpu-some-2c-host"


@pytest.fixture
def store(tmp_path):
    return BaselineStore(tmp_path / "baselines")


@pytest.fixture
def stored(store):
    """``stored(baseline)`` writes the baseline as the store does, and returns its path."""

    def write(baseline):
        return store.update(KEY, lambda _: baseline)

    return write
