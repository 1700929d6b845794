"""Fixtures of all tests."""

from __future__ import annotations

import contextlib
import gc
import signal
import socket
from collections.abc import Iterator

import pytest
from hypothesis import settings

from ddp_perf.launch.engines.hosts import Hosts
from ddp_perf.launch.server_launcher import ServerLauncher

settings.register_profile("few", max_examples=30)
settings.register_profile("all", max_examples=100)  # --hypothesis-profile=all, as ci/test --all
settings.load_profile("few")


def pytest_collection_finish() -> None:
    """Leave what was collected out of garbage collections: a full one takes half a second."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _heed_interrupts() -> None:
    """Undo what a shell does that runs the tests in the background: it has SIGINT ignored."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def launcher() -> Iterator[ServerLauncher]:
    """One forkserver for all tests that launch real ranks: it takes seconds to start."""
    with contextlib.closing(ServerLauncher()) as launcher:
        yield launcher


@pytest.fixture(scope="session")
def nodes_launcher() -> Iterator[ServerLauncher]:
    """Servers on two hosts, both of which are this machine: for cases of two nodes."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        endpoint = f"127.0.0.1:{free.getsockname()[1]}"
    engine = Hosts(["a", "b"], node_shell="env NODE={node} sh -c", endpoint=endpoint)
    with contextlib.closing(ServerLauncher(engine)) as launcher:
        yield launcher
