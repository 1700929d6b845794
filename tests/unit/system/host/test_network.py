"""Network interfaces: their counters, the speed of their link, and the one of a process group."""

from __future__ import annotations

import socket

import pytest

from ddp_perf.core.launch import NetworkUse, RdmaUse
from ddp_perf.system.host import network
from ddp_perf.system.host.network import (
    address_towards,
    group_interface,
    interface_between_nodes,
    interface_towards,
    rdma_networks,
    read_interface,
    read_rdma,
)
from tests.builders import make_case


@pytest.fixture
def interface(monkeypatch, tmp_path):
    """``interface(speed)``: make an interface eth9 whose file ``speed`` has this text."""

    def make(speed):
        counters = tmp_path / "eth9" / "statistics"
        counters.mkdir(parents=True)
        (counters / "tx_bytes").write_text("12\n")
        (counters / "rx_bytes").write_text("34\n")
        if speed is not None:
            (tmp_path / "eth9" / "speed").write_text(speed)
        monkeypatch.setattr(network, "_INTERFACES", tmp_path)

    return make


def test_an_interface_has_the_bytes_it_sent_and_received(interface):
    interface("10000\n")

    assert read_interface("eth9") == NetworkUse(
        interface="eth9", sent=12, received=34, speed=1.25e9
    )
    assert read_interface("eth8") is None


def test_the_counters_of_loopback_count_what_is_sent_over_it():
    """Other programs may send, too, so there is no upper bound."""
    before = read_interface("lo")
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as sender,
    ):
        receiver, _ = server.accept()
        with receiver:
            sender.sendall(bytes(20_000))
            while len(receiver.recv(20_000, socket.MSG_PEEK)) < 20_000:
                pass
    after = read_interface("lo")

    assert after.sent - before.sent >= 20_000
    assert after.received - before.received >= 20_000


@pytest.mark.parametrize(
    ("speed", "expected"),
    [("10000\n", 1.25e9), ("-1\n", None), ("", None), (None, None)],
    ids=["10 Gbit/s", "unknown to the driver", "empty", "no file"],
)
def test_the_speed_of_a_link_is_in_bytes_per_second(speed, expected, interface):
    interface(speed)

    assert read_interface("eth9").speed == expected


@pytest.mark.parametrize(
    ("tier", "world_size", "expected"),
    [("cpu", 2, "lo"), ("gpu", 2, "eth9"), ("cpu", 1, None)],
)
def test_the_interface_is_what_the_variable_of_the_backend_names(
    tier, world_size, expected, monkeypatch
):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "=eth9")

    assert group_interface(make_case(tier=tier, world_size=world_size)) == expected


def test_without_the_variable_the_interface_is_unknown(monkeypatch):
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)

    assert group_interface(make_case(world_size=2)) is None


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_the_way_to_this_host_is_loopback(host):
    assert interface_towards(host) == "lo"
    assert address_towards("127.0.0.1") == "127.0.0.1"


def test_a_host_without_a_route_has_no_interface():
    assert address_towards("no-such-host.invalid") is None
    assert interface_towards("no-such-host.invalid") is None


@pytest.mark.parametrize(
    ("host", "routes", "expected"),
    [
        ("127.0.0.1", {"127.0.0.1": "lo"}, "lo"),
        ("node1", {"node1": "lo", "192.0.2.1": "eth0"}, "eth0"),
        ("node1", {"node1": "lo"}, None),
        ("node1", {"node1": "eth1", "192.0.2.1": "eth0"}, "eth1"),
    ],
    ids=["given as loopback", "its own name at 127.0.1.1", "no other route", "another host"],
)
def test_nodes_never_meet_at_a_name_of_loopback(monkeypatch, host, routes, expected):
    monkeypatch.setattr(network, "interface_towards", routes.get)

    assert interface_between_nodes(host) == expected


@pytest.fixture
def rdma(monkeypatch, tmp_path):
    """``rdma(states)``: make a device for RDMA whose ports have these states.

    Port n has sent n × 1,000 and received n × 2,000 counts of 4 bytes, and waited n ticks.
    """

    def make(*states, rate="400 Gb/sec (4X NDR)", without=None):
        for number, state in enumerate(states, 1):
            port = tmp_path / "mlx5_0" / "ports" / str(number)
            (port / "counters").mkdir(parents=True)
            (port / "state").write_text(f"{state}\n")
            (port / "link_layer").write_text("InfiniBand\n")
            (port / "rate").write_text(f"{rate}\n")
            for name, count in (
                ("port_xmit_data", 1000),
                ("port_rcv_data", 2000),
                ("port_xmit_wait", 1),
            ):
                if name != without:
                    (port / "counters" / name).write_text(f"{number * count}\n")

    monkeypatch.setattr(network, "_RDMA_DEVICES", tmp_path)
    return make


def test_active_ports_for_rdma_are_counted_by_their_kind_and_rate(rdma):
    assert rdma_networks() is None
    rdma("4: ACTIVE", "1: DOWN", "4: ACTIVE")

    assert rdma_networks() == "2 x InfiniBand 400 Gb/sec (4X NDR)"


def test_the_bytes_of_ports_for_rdma_are_those_of_the_active_ones_together(rdma):
    assert read_rdma() is None
    rdma("4: ACTIVE", "1: DOWN", "4: ACTIVE")

    found = read_rdma()
    assert found.use == RdmaUse(
        ports="2 x InfiniBand 400 Gb/sec (4X NDR)",
        sent=4 * 4000,
        received=4 * 8000,
        waited=4,
        speed=2 * 50e9,  # bytes/s: 400 Gbit/s each
    )
    assert [port.name for port in found.ports] == ["1", "3"]


def test_a_counter_that_an_adapter_lacks_is_unknown(rdma):
    rdma("4: ACTIVE", without="port_xmit_wait")

    use = read_rdma().use
    assert (use.sent, use.received, use.waited) == (4000, 8000, None)


def test_ports_without_counters_of_bytes_are_unknown(rdma):
    rdma("4: ACTIVE", without="port_rcv_data")

    assert read_rdma() is None


def test_a_rate_that_is_no_number_is_unknown(rdma):
    rdma("4: ACTIVE", rate="unknown")

    assert read_rdma().use.speed is None


def test_between_nodes_nccl_uses_the_interface_of_the_route_unless_there_is_rdma(rdma, monkeypatch):
    monkeypatch.delenv("NCCL_SOCKET_IFNAME", raising=False)
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    across, here = make_case(tier="gpu", world_size=2, nodes=2), make_case(tier="gpu", world_size=2)

    assert (group_interface(across), group_interface(here)) == ("lo", None)
    rdma("4: ACTIVE")
    assert group_interface(across) is None  # no interface counts that traffic
