"""Slow links and unlike nodes are warned of, whatever the verdicts."""

from __future__ import annotations

import msgspec
import pytest

from ddp_perf.core.launch import KeptOutput, NcclChoice
from ddp_perf.session.gate.links import machine_warnings
from ddp_perf.system.gpu.gpus import hardware_of
from tests.builders import make_case, make_environment, make_gpu_machine, make_measurement

TWO = make_case(world_size=2, tier="gpu")
ACROSS = make_case(world_size=4, nodes=2, tier="gpu")


def warnings(case, *transports, states=(), **environment):
    measured = make_measurement(case, [0.01])
    output = KeptOutput(directory="d", nccl=NcclChoice(transports=transports))
    launch = msgspec.structs.replace(measured.launches[0], output=output, node_hardware=states)
    measured = msgspec.structs.replace(measured, launches=(launch,))
    return machine_warnings([measured], make_environment(**environment))


@pytest.mark.parametrize(
    ("networks", "why"),
    [
        ("8 x InfiniBand 400 Gb/sec", "although the nodes have 8 x InfiniBand 400 Gb/sec"),
        (None, "and no network for RDMA is visible"),
    ],
)
def test_sockets_between_nodes_are_warned_of(networks, why):
    (warning,) = warnings(ACROSS, "NET/Socket", "P2P/CUMEM", networks=networks)

    assert warning.startswith("4 ranks on 2 nodes: NCCL sends between the nodes over TCP sockets")
    assert why in warning


@pytest.mark.parametrize("access", ["no", "?", None])
def test_the_memory_of_the_host_is_warned_of_only_if_the_gpus_can_do_without(access):
    (warning,) = warnings(TWO, "SHM/direct/direct", peer_access="yes")

    assert warning.startswith("2 ranks: NCCL sends through the host's memory (SHM), although")
    assert warnings(TWO, "SHM/direct/direct", peer_access=access) == ()


def test_the_transports_that_are_expected_are_not_warned_of():
    assert warnings(TWO, "P2P/CUMEM", peer_access="yes") == ()
    assert warnings(ACROSS, "NET/IB/GDRDMA", "P2P/CUMEM", peer_access="yes") == ()
    assert warnings(TWO) == ()


def test_nodes_that_differ_are_warned_of_with_their_values():
    states = [
        hardware_of(make_gpu_machine("A", "A", power_limit_w=watts, ecc=None), networks)
        for watts, networks in ((400.0, "1 x InfiniBand"), (300.0, "1 x InfiniBand"))
    ]

    found = warnings(ACROSS, states=tuple(states))

    assert found == (
        "the 2 nodes differ in power limit (W) (a 400.0, b 300.0): the slowest decides",
    )
