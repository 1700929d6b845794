"""An endpoint at which the nodes cannot meet is refused before torchrun waits for its deadline."""

from __future__ import annotations

import socket

import pytest

from ddp_perf.errors import LaunchError
from ddp_perf.launch.nodes import engine
from ddp_perf.launch.nodes.engine import Rendezvous


@pytest.fixture
def port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def test_a_name_that_means_only_the_host_itself_there_is_refused(monkeypatch, port):
    """Debian's /etc/hosts has "127.0.1.1 host1" on host1."""
    monkeypatch.setattr(engine, "address_towards", lambda host: "127.0.0.1")

    with pytest.raises(LaunchError, match=r"^host1 is 127\.0\.0\.1 on .*ADDRESS:PORT"):
        Rendezvous(f"host1:{port}", 0).check()


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]"])
def test_nodes_that_are_all_on_this_host_may_meet_on_it(monkeypatch, port, host):
    monkeypatch.setattr(engine, "address_towards", lambda host: "127.0.0.1")

    Rendezvous(f"{host}:{port}", 0).check()


def test_a_host_that_no_node_can_resolve_yet_may_come_later(monkeypatch, port):
    monkeypatch.setattr(engine, "address_towards", lambda host: None)

    Rendezvous(f"job-0.job:{port}", 0).check()


def test_only_the_first_node_needs_the_port():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        endpoint = f"127.0.0.1:{taken.getsockname()[1]}"

        Rendezvous(endpoint, 1).check()
        with pytest.raises(LaunchError, match="is in use: choose another: rdzv_endpoint of"):
            Rendezvous(endpoint, 0).check()
