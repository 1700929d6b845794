"""Emulated cases on real ranks: one runs as one of many, and takes the time of its network."""

from __future__ import annotations

import contextlib

import pytest

from ddp_perf.config.network import parse_network
from ddp_perf.core.case import emulated
from ddp_perf.core.launch import LaunchRequest, LaunchResult
from ddp_perf.launch.server_launcher import ServerLauncher
from ddp_perf.stats.step_decomposition import decompose
from ddp_perf.torch_compat import shards_on_cpu
from ddp_perf.worker.emulation import LinkModel
from tests.builders import make_cases
from tests.system.test_script_launchers import SCRIPT
from tests.unit.duel.script_cases import make_script_case

NETWORK = "gpus_per_node=8,intra=1GB/s,inter=0.05GB/s"
RANKS = 64
SMALL = {"model": {"input_dim": 64, "hidden_dim": 64, "output_dim": 64, "num_layers": 2}}
SIZES = {"world_sizes": [2], "batch_sizes": [4], "steps": 12, "warmup": 4}


@pytest.fixture(scope="module")
def launch():
    """``launch(case)``: the result of one launch, which must succeed."""
    with contextlib.closing(ServerLauncher()) as launcher:

        def run(case, **request):
            outcome = launcher.launch(LaunchRequest(case=case, round=0, probe_steps=3, **request))
            assert isinstance(outcome, LaunchResult), outcome
            return outcome

        yield run


def many(**changes):
    """The emulated case of a small suite."""
    (case,) = [
        case
        for case in make_cases(**SMALL, **SIZES, emulated=[RANKS], network=NETWORK, **changes)
        if case.network is not None
    ]
    return case


def model_s(structure):
    """What the network's model gives for the collectives of a step, one after the other."""
    model = LinkModel(parse_network(NETWORK, "network:"))
    return sum(
        model.call(one.kind, one.bytes, range(RANKS)).seconds for one in structure.collectives
    )


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, id="ddp"),
        pytest.param({"comm_hooks": [{"kind": "fp16"}]}, id="hook"),
        # Its callbacks wait for collectives of their own.
        pytest.param({"comm_hooks": [{"kind": "powersgd", "start_step": 2}]}, id="powersgd"),
        pytest.param(
            {"strategy": "fsdp"},
            id="fsdp",
            marks=pytest.mark.skipif(not shards_on_cpu(), reason="FSDP2 on a CPU needs torch 2.9"),
        ),
    ],
)
def test_one_rank_takes_the_time_of_its_collectives_and_has_all_facts(launch, changes):
    case = many(**changes)
    outcome = launch(case)

    (rank,) = outcome.ranks
    assert rank.missing == {}
    assert rank.structure.collectives
    assert outcome.typical_step_s > 0.9 * model_s(rank.structure)
    assert all(loss is not None for loss in outcome.losses.values())
    terms = decompose(outcome)
    assert terms.communication_s > 0.9 * model_s(rank.structure)
    assert terms.terms["exposed"] > 0


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"comm_hooks": [{"kind": "hierarchical", "group_size": "node"}]}, id="hook"),
        pytest.param(
            {"strategy": "fsdp", "fsdp": {"replicate": "nodes"}},
            id="mesh",
            marks=pytest.mark.skipif(not shards_on_cpu(), reason="FSDP2 on a CPU needs torch 2.9"),
        ),
    ],
)
def test_what_crosses_nodes_takes_a_share_of_their_link(launch, changes):
    outcome = launch(many(**changes))

    (rank,) = outcome.ranks
    across = [one.bytes for one in rank.structure.collectives if one.kind == "all_reduce"]
    model = LinkModel(parse_network(NETWORK, "network:"))
    takes = [model.call("all_reduce", size, range(0, RANKS, 8), RANKS).seconds for size in across]
    assert rank.missing == {}
    assert across
    assert outcome.typical_step_s > 0.9 * sum(takes)


def test_the_structure_is_that_of_real_ranks(launch):
    real = (many(), *make_cases(**SMALL, **SIZES))
    outcomes = [launch(case) for case in real]

    first, second = (outcome.ranks[0].structure for outcome in outcomes)
    assert first == second


def test_a_script_is_emulated_as_it_is(launch, tmp_path):
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "train.py").write_text(SCRIPT, encoding="utf-8")
    (tmp_path / "jobs" / "sizes.py").write_text("WIDTH = 16\n", encoding="utf-8")
    suite = {"script": "jobs/train.py", "world_sizes": [RANKS], "steps": 8, "warmup": 2}
    case = emulated(make_script_case(**suite), NETWORK)
    outcome = launch(case, import_paths=(str(tmp_path),))

    (rank,) = outcome.ranks
    assert rank.structure.collectives
    assert outcome.typical_step_s > 0.9 * model_s(rank.structure)
