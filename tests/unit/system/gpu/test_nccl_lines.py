"""NCCL's lines as users recorded them, shortened, with the names of their hosts replaced."""

from __future__ import annotations

import pytest

from ddp_perf.core.launch import NcclChoice
from ddp_perf.system.gpu.gpus import nccl_choice

# NCCL 2.27.5 of torch 2.9.1, two GeForce GPUs without P2P, one line of each kind.
SHARED_MEMORY = """\
host:1463326:1463326 [0] NCCL INFO cudaDriverVersion 12090
host:1463326:1463326 [0] NCCL INFO NCCL version 2.27.5+cuda12.9
host:1463326:1463512 [0] NCCL INFO Channel 00/02 : 0 1
host:1463326:1463512 [0] NCCL INFO Trees [0] 1/-1/-1->0->-1 [1] 1/-1/-1->0->-1
host:1463326:1463512 [0] NCCL INFO 2 coll channels, 2 collnet channels, 0 nvls channels, \
2 p2p channels, 2 p2p channels per peer
host:1463326:1463523 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via SHM/direct/direct
host:1463326:1463523 [0] NCCL INFO Channel 01 : 0[0] -> 1[1] via SHM/direct/direct
host:1463326:1463523 [0] NCCL INFO Connected all rings, use ring PXN 0 GDR 1
"""
# Eight H100 in one node, and two nodes of H20 (github.com/NVIDIA/nccl/issues/1189).
NVLINK = """\
host:1804:1804 [7] NCCL INFO Channel 23/0 : 2[2] -> 1[1] via P2P/IPC
host:1804:1804 [7] NCCL INFO Connected all trees
host:1804:1804 [7] NCCL INFO 24 coll channels, 24 collnet channels, 16 nvls channels, \
32 p2p channels, 32 p2p channels per peer
"""
TWO_NODES = """\
host:4015540:4015653 [1] NCCL INFO Channel 00/0 : 1[1] -> 3[1] [receive] via NET/IB/2/GDRDMA
host:4015540:4015653 [1] NCCL INFO Channel 01/0 : 3[1] -> 1[1] [send] via NET/IB/3/GDRDMA
host:4015540:4015653 [1] NCCL INFO Channel 00/0 : 3[1] -> 2[0] via P2P/CUMEM
"""


def test_version_channels_and_transport_are_read():
    assert nccl_choice([SHARED_MEMORY]) == NcclChoice(
        version="2.27.5", channels=2, nvls_channels=0, transports=("SHM/direct/direct",)
    )


def test_the_lines_of_all_ranks_count_and_a_network_card_has_no_number():
    choice = nccl_choice([NVLINK, TWO_NODES])

    assert choice.transports == ("NET/IB/GDRDMA", "P2P/CUMEM", "P2P/IPC")
    assert (choice.version, choice.channels, choice.nvls_channels) == (None, 24, 16)


@pytest.mark.parametrize(
    ("line", "transport"),
    [
        # github.com/NVIDIA/nccl/issues/1453, nccl-tests/issues/29 and /527, nccl/issues/952
        ("Channel 07/0 : 0[0] -> 15[7] [send] via NET/IBext_v8/0(7)/GDRDMA", "NET/IBext_v8/GDRDMA"),
        ("Channel 05 : 8[101c0] -> 9[101d0] via P2P/IPC/read", "P2P/IPC/read"),
        ("Channel 00/0 : 3[3] -> 2[2] via P2P/direct pointer", "P2P/direct pointer"),
        ("Channel 03/0 : 15[7] -> 6[6] [send] via NET/Socket/3", "NET/Socket"),
    ],
)
def test_every_form_of_a_transport_is_read(line, transport):
    assert nccl_choice([f"host:1:2 [0] NCCL INFO {line}\n"]).transports == (transport,)


@pytest.mark.parametrize(
    ("line", "algorithm"),
    [
        (
            "AllReduce: 32768 Bytes -> Algo TREE proto LL channel{Lo..Hi}={0..3}",
            "AllReduce TREE/LL",
        ),
        (
            "AllReduce: 8388608 Bytes -> Algo Ring proto LL128 channel{Lo..Hi}={0..15}",
            "AllReduce RING/LL128",
        ),
        ("AllGather: 37756928 Bytes -> Algo 1 proto 2 time 2860.208008", "AllGather RING/SIMPLE"),
        ("4194304 Bytes -> Algo 1 proto 2 time 37.291656", "RING/SIMPLE"),
        ("Broadcast: 64 Bytes -> Algo 99 proto 0 time 1.0", "Broadcast 99/LL"),
    ],
)
def test_the_algorithm_of_a_call_is_read_by_name_or_by_index(line, algorithm):
    lines = f"host:1:2 [0] NCCL INFO {line}\n" * 3

    assert nccl_choice([lines]).algorithms == (algorithm,)


def test_an_output_without_nccl_has_no_choice():
    assert nccl_choice(["epoch 1, loss 0.3\n", ""]) is None


def test_the_version_alone_is_read():
    """NCCL_DEBUG=VERSION prints it without a prefix."""
    assert nccl_choice(["NCCL version 2.21.5+cuda12.4\n"]) == NcclChoice(version="2.21.5")
