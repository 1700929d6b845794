"""``python -m ddp_perf.bench`` on real gloo ranks: alone, under torchrun, and as two nodes.

tests/system/test_docs.py runs the commands of docs/bench.md, and compares what they print.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys

import pytest

from ddp_perf.traces.analysis import analyse_traces
from tests.projects import REPOSITORY

MODULE = ("-m", "ddp_perf.bench")
TORCHRUN = ("-m", "torch.distributed.run")
SMALL = (
    "--device=cpu",
    *("--epochs=2", "--steps-per-epoch=6", "--warmup-steps=2", "--batch-size=32"),
    *("--input-dim=64", "--hidden-dim=256", "--output-dim=32"),
)


@pytest.fixture
def start(tmp_path, monkeypatch):
    """``start(*arguments)`` starts the interpreter in an empty folder."""
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    for name in ("RANK", "OMP_NUM_THREADS", "GLOO_SOCKET_IFNAME"):
        monkeypatch.delenv(name, raising=False)

    def run(*arguments):
        return subprocess.Popen(
            [sys.executable, *arguments],
            cwd=tmp_path,
            env={**os.environ, "TMPDIR": str(tmp_path)},  # torchrun leaves a directory there
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )

    return run


def block_of(output):
    """Return the fields of the summary block."""
    lines = output.partition("=== DDP Scaling Benchmark ===\n")[2].splitlines()
    return {name.strip(): value for name, _, value in (line.partition(" : ") for line in lines)}


def figure(text):
    return float(re.match(r"[\d,.]+", text)[0].replace(",", ""))


@pytest.mark.slow
def test_alone_it_trains_without_ddp(start):
    out, error = (process := start(*MODULE, *SMALL)).communicate(timeout=120)

    assert process.returncode == 0, error
    assert out.startswith("[Rank 0] CUDA_VISIBLE_DEVICES=")
    block = block_of(out)
    assert block["World size"] == "1"
    assert "strategy=none" in block["Config"]
    # The slowest rank of each step: with one rank both are its steps.
    samples_per_s = 32 / (figure(block["Avg step time"]) / 1e3)
    assert figure(block["Throughput"]) == pytest.approx(samples_per_s, rel=0.05)


def test_torchrun_starts_ranks_whose_results_rank_0_prints_once(start, tmp_path):
    flags = ("--no-static-graph", "--broadcast-buffers", "--bucket-cap-mb=0.1", "--profile=traces")
    process = start(*TORCHRUN, "--nproc_per_node=2", *MODULE, *SMALL, *flags)

    out, error = process.communicate(timeout=180)

    assert process.returncode == 0, error
    ranks = re.findall(r"^\[Rank (\d)\] .*LOCAL_RANK=(\d), current_device=cpu", out, re.MULTILINE)
    assert ranks == [("0", "0"), ("1", "1")]
    assert out.count("=== DDP Scaling Benchmark ===") == 1
    config = block_of(out)["Config"].split(", ")
    assert {
        *("world_size=2", "strategy=ddp", "ddp.bucket_cap_mb=0.1"),
        *("ddp.static_graph=False", "ddp.broadcast_buffers=True"),
    } <= set(config)
    paths = re.findall(r"^traces/rank\d\.json\.gz$", out, re.MULTILINE)
    analysis = analyse_traces([tmp_path / path for path in paths])
    assert [rank.rank for rank in analysis.ranks] == [0, 1]
    assert [len(rank.steps) for rank in analysis.ranks] == [3, 3]


@pytest.mark.slow
def test_a_wrong_flag_ends_torchrun_with_one_message(start):
    process = start(*TORCHRUN, "--nproc_per_node=2", *MODULE, *SMALL, "--num-layer=3")

    out, error = process.communicate(timeout=120)

    assert process.returncode == 1
    assert not out
    assert error.count("unrecognized arguments: --num-layer=3") == 1


@pytest.fixture
def as_two_nodes(start):
    """``as_two_nodes(first, second)`` runs a torchrun of one rank with each of these flags."""

    def run(*flags):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            endpoint = f"127.0.0.1:{free.getsockname()[1]}"
        where = ("--nnodes=2", "--nproc_per_node=1", "--rdzv-backend=c10d")
        nodes = [
            start(*TORCHRUN, *where, f"--rdzv-endpoint={endpoint}", *MODULE, *SMALL, *own)
            for own in flags
        ]
        ends = [node.communicate(timeout=180) for node in nodes]
        codes = [node.returncode for node in nodes]
        return codes, *("".join(texts) for texts in zip(*ends, strict=True))

    return run


@pytest.mark.slow
def test_two_torchruns_are_two_nodes(as_two_nodes):
    codes, out, error = as_two_nodes((), ())

    assert codes == [0, 0], error
    host = re.escape(socket.gethostname())
    lines = re.findall(rf"^\[Rank (\d)\] .* LOCAL_RANK=0, .*, node (\d) \({host}\)$", out, re.M)
    assert lines == [("0", "0"), ("1", "1")]
    assert block_of(out)["Config"].endswith("nodes=2")


@pytest.mark.slow
def test_a_node_with_other_flags_ends_all_nodes_and_names_the_flag(as_two_nodes):
    codes, out, error = as_two_nodes(("--num-layers=2",), ("--num-layers=3",))

    assert codes == [1, 1]
    assert not out
    assert re.search(r"rank \d: num_layers is \d on rank 1, but \d on rank 0;", error)
    assert "ddp_perf/bench" not in error  # no traceback of this package
