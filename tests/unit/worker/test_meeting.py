"""Where the ranks of a launch meet, and that those of two launches do not."""

from __future__ import annotations

import contextlib
import datetime
import gc
import os
import socket

import pytest
from torch.distributed import FileStore, TCPStore

from ddp_perf.core.launch import LaunchRequest
from ddp_perf.errors import LaunchError
from ddp_perf.worker.process import meet
from tests.builders import make_case
from tests.faults.leaks import listening

BETWEEN_NODES = LaunchRequest(case=make_case(world_size=2, nodes=2), round=0)


@pytest.fixture
def port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


@pytest.fixture
def rank(monkeypatch, tmp_path, port):
    """``rank(number, launch)``: the store of a rank of a launch, all at one endpoint."""
    stores = []

    def of(number, launch):
        monkeypatch.setenv("RANK", str(number))
        monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
        monkeypatch.setenv("MASTER_PORT", str(port))
        monkeypatch.setenv("DDP_PERF_LAUNCH", launch)
        stores.append(meet(BETWEEN_NODES, tmp_path))
        return stores[-1]

    yield of
    stores.clear()
    gc.collect()


def test_the_ranks_of_one_node_meet_in_a_file_and_at_no_port(tmp_path, monkeypatch):
    """Whatever a job has set for ranks of its own."""
    monkeypatch.setenv("MASTER_ADDR", "10.0.0.1")
    monkeypatch.setenv("MASTER_PORT", "29400")

    store = meet(LaunchRequest(case=make_case(world_size=2), round=0), tmp_path)

    assert isinstance(store, FileStore)


def test_the_ranks_of_several_nodes_meet_at_the_port_of_the_first(rank):
    first, second = rank(0, "one"), rank(1, "one")

    first.set("key", "value")

    assert second.get("key") == b"value"


def test_ranks_that_meet_at_loopback_listen_nowhere_else(rank, port):
    _first = rank(0, "one")

    at = [address for address in listening(os.getpid()) if address.endswith(f":{port:04X}")]
    assert at == [f"0100007F:{port:04X}"]


def test_a_rank_that_finds_another_launch_at_its_endpoint_is_refused(rank):
    _first = rank(0, "one")

    with pytest.raises(LaunchError, match="ranks of another launch meet at 127"):
        rank(1, "two")


def test_a_port_that_is_taken_is_an_error_of_the_first_rank_itself(rank, port):
    """And no symptom of one that is lost."""
    patience = datetime.timedelta(seconds=5)
    other = TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False, timeout=patience)

    with contextlib.ExitStack() as stack:
        stack.callback(lambda: other)
        with pytest.raises(LaunchError, match=f"rank 0 cannot listen at 127.0.0.1:{port}"):
            rank(0, "one")
