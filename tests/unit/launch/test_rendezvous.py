"""An endpoint at which the nodes cannot meet is refused before ranks wait for their deadline."""

from __future__ import annotations

import socket

import pytest

from ddp_perf.errors import LaunchError
from ddp_perf.launch import rendezvous
from ddp_perf.launch.rendezvous import Rendezvous


@pytest.fixture
def port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def test_a_name_that_means_only_the_host_itself_there_is_refused(monkeypatch, port):
    """Debian's /etc/hosts has "127.0.1.1 host1" on host1."""
    monkeypatch.setattr(rendezvous, "address_towards", lambda host: "127.0.0.1")

    with pytest.raises(LaunchError, match=r"^host1 is 127\.0\.0\.1 on .*ADDRESS:PORT"):
        Rendezvous(f"host1:{port}", is_host=True, launch="one").check()


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]"])
def test_nodes_that_are_all_on_this_host_may_meet_on_it(monkeypatch, port, host):
    monkeypatch.setattr(rendezvous, "address_towards", lambda host: "127.0.0.1")

    Rendezvous(f"{host}:{port}", is_host=True, launch="one").check()


def test_a_host_that_no_node_can_resolve_yet_may_come_later(monkeypatch, port):
    monkeypatch.setattr(rendezvous, "address_towards", lambda host: None)

    Rendezvous(f"job-0.job:{port}", is_host=True, launch="one").check()


def test_only_the_first_node_needs_the_port():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        endpoint = f"127.0.0.1:{taken.getsockname()[1]}"

        Rendezvous(endpoint, is_host=False, launch="one").check()
        with pytest.raises(LaunchError, match="is in use: choose another: rdzv_endpoint of"):
            Rendezvous(endpoint, is_host=True, launch="one").check()


def test_torch_finds_an_endpoint_by_its_address_and_port():
    assert Rendezvous("[::1]:29400", is_host=True, launch="one").variables == {
        "MASTER_ADDR": "::1",
        "MASTER_PORT": "29400",
        "DDP_PERF_LAUNCH": "one",
    }


def test_an_endpoint_whose_host_answers_is_reached(port):
    assert Rendezvous(f"127.0.0.1:{port}", is_host=False, launch="one").unreachable() is None
    unknown = "no-such-host.invalid:29400"
    assert Rendezvous(unknown, is_host=False, launch="one").unreachable() == unknown
