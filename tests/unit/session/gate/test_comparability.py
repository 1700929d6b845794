"""Environments are comparable or not, and their other differences are named."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings

from ddp_perf.launch.launcher import Runtime
from ddp_perf.session.gate.comparability import changes, mismatches, other_machine, same_software
from ddp_perf.session.measure.environment import describe_environment
from ddp_perf.system.gpu.gpus import find_gpus
from tests.builders import (
    RUNTIME,
    make_capacity,
    make_case,
    make_case_baseline,
    make_environment,
    make_session,
)
from tests.recordings import RECORDED, RecordedReader
from tests.strategies import gpu_machines

H200 = make_environment(
    accelerator="NVIDIA H200",
    accelerator_key="h200",
    accelerator_count=4,
    interconnect="SYS",
    links="NV18 NV18 SYS",
    peer_access="yes yes yes",
    pcie="5x16 5x16 5x16 5x16",
    transports={"2 ranks": "P2P/CUMEM", "8 ranks on 2 nodes": "NET/IB P2P/CUMEM"},
    gpu_memory=140 * 2**30,
    power_limit_w=700.0,
    sm_clock_mhz=1980,
    ecc=True,
    persistence=True,
)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"accelerator_key": "h200-nvl"}, "accelerator h200, here h200-nvl"),
        ({"links": "PHB SYS SYS"}, "interconnect NV18, here PHB"),
        ({"gpu_memory": 94 * 2**30}, "memory 140 GiB, here 94 GiB"),
        ({"power_limit_w": 500.0}, "power limit 700 W, here 500 W"),
        ({"peer_access": "no no no"}, "peer access yes, here no"),
        ({"pcie": "5x16 5x8 5x16 5x16"}, "PCIe under load 5x16, here 5x8"),
        ({"pcie": "5x16 3x16"}, "PCIe under load 5x16, here 3x16"),
    ],
)
def test_a_checked_field_that_differs_is_named_with_both_values(changed, expected):
    now = msgspec.structs.replace(H200, **changed)

    assert mismatches(H200, now, world_size=2) == [expected]


@pytest.mark.parametrize(
    "changed",
    [
        {"accelerator": "H200"},  # as an older driver writes it
        {"gpu_memory": 139 * 2**30},  # a newer one keeps more for itself
        {"power_limit_w": 690.0},
        {"power_limit_w": None, "gpu_memory": None, "links": None},
        {"pcie": None, "peer_access": None},
        {"pcie": "5x16 ?", "peer_access": "? ? ?"},
        {"pcie": "5x16", "peer_access": ""},
        {"pcie": "5x16 5x16 5x8", "peer_access": "yes no no"},  # beyond its own two GPUs
        {"torch": "2.14.0", "driver": "999", "host": "other"},
        {"links": "NV18 SYS SYS", "interconnect": "SYS"},
        {"accelerator_count": 2, "links": "NV18", "interconnect": "NV18"},
    ],
)
def test_a_difference_that_does_not_affect_two_ranks_is_no_mismatch(changed):
    now = msgspec.structs.replace(H200, **changed)

    assert mismatches(H200, now, world_size=2) == []


@pytest.mark.parametrize(("ranks", "found"), [(1, 0), (2, 0), (3, 1), (4, 0)])
def test_only_the_links_between_its_own_ranks_count_for_a_case(ranks, found):
    now = msgspec.structs.replace(H200, links="NV18 SYS SYS")

    assert len(mismatches(H200, now, world_size=ranks)) == found


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, []),
        ({"torch": "2.14.0"}, ["torch 2.13.0 → 2.14.0"]),
        ({"driver": "570.1", "host": "b"}, ["driver unset → 570.1", "host host → b"]),
        ({"ecc": False}, ["ecc True → False"]),
        ({"commit": "fedcba"}, []),
        ({"power_limit_w": 500.0}, []),
    ],
)
def test_informative_changes_are_reported_and_checked_fields_are_not(changed, expected):
    assert changes(H200, msgspec.structs.replace(H200, **changed)) == expected


def test_one_session_of_another_machine_within_a_file_is_found():
    low = msgspec.structs.replace(H200, power_limit_w=500.0)
    sessions = [
        msgspec.structs.replace(make_session([0.01], day=day), environment=environment)
        for day, environment in ((1, H200), (2, low), (3, H200))
    ]
    stored = make_case_baseline(make_case(), *sessions)

    assert other_machine(stored, H200, world_size=2) == (
        "the session of 2026-01-02 is of another machine: power limit 500 W, here 700 W"
    )


def environment_of(reader, tmp_path, mask=None, runtime: Runtime = RUNTIME):
    machine = find_gpus({} if mask is None else {"CUDA_VISIBLE_DEVICES": mask}, reader)
    return describe_environment(make_capacity(machine), "gpu", runtime, tmp_path)


@pytest.mark.parametrize("one", RECORDED)
@pytest.mark.parametrize("other", RECORDED)
def test_recorded_machines_are_comparable_only_with_themselves(one, other, tmp_path):
    first = environment_of(RecordedReader.of(one), tmp_path)
    second = environment_of(RecordedReader.of(other), tmp_path)

    assert bool(mismatches(first, second, world_size=1)) == (one != other)


def test_a_subset_has_the_interconnect_of_its_own_gpus(tmp_path):
    reader = RecordedReader.of("a100-pcie-bridges")
    far, near = environment_of(reader, tmp_path, "0,2"), environment_of(reader, tmp_path, "2,3")

    assert (far.interconnect, near.interconnect) == ("SYS", "NODE")
    assert mismatches(far, near, world_size=2) == ["interconnect SYS, here NODE"]
    assert mismatches(far, near, world_size=1) == []


@settings(max_examples=40)
@given(machine=gpu_machines())
def test_any_machine_is_comparable_with_itself(machine, tmp_path_factory):
    environment = environment_of(RecordedReader(machine), tmp_path_factory.getbasetemp())

    for ranks in range(1, len(machine.gpus) + 1):
        assert mismatches(environment, environment, world_size=ranks) == []
    assert changes(environment, environment) == []
    assert len((environment.links or "").split()) == max(len(machine.gpus) - 1, 0)


def test_a_changed_variable_is_named_and_does_not_prevent_a_comparison():
    before = msgspec.structs.replace(H200, variables={"NCCL_ALGO": "Ring", "NCCL_DEBUG": "WARN"})
    after = msgspec.structs.replace(H200, variables={"NCCL_ALGO": "Tree", "NCCL_PROTO": "LL"})

    assert changes(before, after) == [
        "NCCL_ALGO Ring → Tree",
        "NCCL_DEBUG WARN → unset",
        "NCCL_PROTO unset → LL",
    ]
    assert mismatches(before, after, world_size=2) == []


def test_an_environment_without_variables_is_stored_as_before():
    assert b"variables" not in msgspec.json.encode(H200)


@pytest.mark.parametrize("name", ["torch", "cuda", "cudnn", "nccl", "driver", "blas"])
def test_an_upgrade_of_any_software_stops_the_control(name):
    upgraded = msgspec.structs.replace(H200, **{name: "another"})

    assert same_software(H200, msgspec.structs.replace(H200))
    assert not same_software(H200, upgraded)
    assert not same_software(upgraded, H200)


@pytest.mark.parametrize(
    "name",
    [
        *("driver", "cuda", "nccl", "torch", "cudnn", "blas", "python", "os", "host"),
        *("sm_clock_mhz", "ecc", "persistence"),
    ],
)
def test_every_informative_condition_is_named_if_it_changed(name):
    (expected,) = changes(H200, msgspec.structs.replace(H200, **{name: 7}))

    assert expected == f"{name} {H200.conditions()[name] or 'unset'} → 7"


@pytest.mark.parametrize("unknown", ["power_limit_w", "gpu_memory", "links"])
def test_a_field_that_either_environment_lacks_is_not_compared(unknown):
    older = msgspec.structs.replace(H200, **{unknown: None})

    assert mismatches(older, H200, world_size=2) == mismatches(H200, older, world_size=2) == []


@pytest.mark.parametrize(("watts", "found"), [(735.0, 0), (665.1, 1), (760.0, 1), (640.0, 1)])
def test_power_limits_within_five_per_cent_are_comparable(watts, found):
    """700 W ÷ 665.1 W is 1.052."""
    now = msgspec.structs.replace(H200, power_limit_w=watts)

    assert len(mismatches(H200, now, world_size=1)) == found


@pytest.mark.parametrize(
    ("same", "nodes", "found"),
    [
        ({}, 2, ["hosts a b, here a c"]),
        ({}, 1, []),  # it ran on the first host alone
        ({"pool": "like hosts"}, 2, []),
        ({"cuda": "12.8"}, 2, []),  # the baseline is that of the GPU's type
    ],
)
def test_nodes_on_other_cpu_hosts_are_another_machine_unless_their_hosts_are_a_pool(
    same, nodes, found
):
    stored = make_environment(nodes=2, hosts="a b", **same)
    now = msgspec.structs.replace(stored, hosts="a c")

    assert mismatches(stored, now, world_size=4, nodes=nodes) == found
    assert changes(stored, now) == ["hosts a b → a c"]


def test_the_link_of_a_case_over_nodes_is_that_of_the_gpus_of_one_node():
    now = msgspec.structs.replace(H200, links="NV18 NV18 PHB")

    assert mismatches(H200, now, world_size=4, nodes=2) == []
    assert mismatches(H200, now, world_size=4) == ["interconnect SYS, here PHB"]


def test_a_changed_transport_is_named_for_each_number_of_ranks_that_both_have():
    now = msgspec.structs.replace(
        H200, transports={"2 ranks": "SHM/direct", "4 ranks": "P2P/CUMEM"}, pcie=None
    )

    assert changes(H200, now) == ["NCCL's transport of 2 ranks P2P/CUMEM → SHM/direct"]
