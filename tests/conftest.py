"""Fixtures of all tests."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from ddp_perf.launch.forkserver import ForkserverLauncher


@pytest.fixture(scope="session")
def launcher() -> Iterator[ForkserverLauncher]:
    """One forkserver for all tests that launch real ranks: it takes seconds to start."""
    with contextlib.closing(ForkserverLauncher()) as launcher:
        yield launcher
