"""The environment of a measurement contains only the fields that apply to its tier."""

from __future__ import annotations

import os

import msgspec

from ddp_perf.core.gpu import GpuLoad
from ddp_perf.core.launch import KeptOutput, NcclChoice
from ddp_perf.session.measure.environment import describe_environment, with_launches
from ddp_perf.system.gpu.gpus import hardware_of
from ddp_perf.system.host.host import Host
from tests.builders import (
    RUNTIME,
    make_capacity,
    make_case,
    make_environment,
    make_gpu_machine,
    make_measurement,
)

MACHINE = make_gpu_machine("NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-40GB", nvlinks=12)


def test_the_environment_of_a_gpu_session_has_gpus_driver_and_libraries(tmp_path):
    environment = describe_environment(make_capacity(MACHINE), "gpu", RUNTIME, tmp_path)

    assert environment.accelerator == "NVIDIA A100-SXM4-40GB"
    assert environment.accelerator_key == "a100-sxm4-40gb"
    assert (environment.accelerator_count, environment.interconnect) == (2, "NV12")
    assert (environment.driver, environment.cuda) == ("570.1", "12.8")
    assert (environment.nccl, environment.cudnn) == ("2.27.3", "90100")


def test_the_environment_of_a_cpu_session_has_no_gpu_fields(tmp_path):
    environment = describe_environment(make_capacity(MACHINE, 8), "cpu", RUNTIME, tmp_path)

    assert environment.accelerator_key.startswith("cpu-")
    assert environment.accelerator_count == 8
    assert environment.blas == "mkl"
    gpu_only = ("interconnect", "driver", "cuda", "cudnn", "nccl")
    assert {getattr(environment, name) for name in gpu_only} == {None}


def test_a_session_of_a_pool_has_its_host_and_on_gpus_no_pool(tmp_path, monkeypatch):
    monkeypatch.setattr("ddp_perf.system.host.host.host_name", lambda: "runner-7")
    capacity = msgspec.structs.replace(make_capacity(MACHINE, 8), pool="ci")

    cpu, gpu = (describe_environment(capacity, tier, RUNTIME, tmp_path) for tier in ("cpu", "gpu"))

    assert (cpu.host, cpu.pool, cpu.pooled_host) == ("runner-7", "ci", "runner-7")
    assert cpu.accelerator_key.endswith("@ci")
    assert (gpu.host, gpu.pool, gpu.pooled_host) == ("runner-7", None, None)
    assert gpu.accelerator_key == "a100-sxm4-40gb"


def test_ranks_elsewhere_are_described_by_their_node_and_not_by_the_driver(tmp_path):
    node = Host(name="gpu-7", os="Linux-6.8", cpu="AMD EPYC 9654", cores=96, quota=64.0)
    capacity = msgspec.structs.replace(make_capacity(MACHINE, 96), node=node)

    cpu, gpu = (describe_environment(capacity, tier, RUNTIME, tmp_path) for tier in ("cpu", "gpu"))

    assert (cpu.host, cpu.os, cpu.accelerator) == ("gpu-7", "Linux-6.8", "AMD EPYC 9654")
    assert cpu.accelerator_key == "cpu-epyc-9654-96c-quota-64-gpu-7"
    assert (gpu.host, gpu.os, gpu.accelerator_key) == ("gpu-7", "Linux-6.8", "a100-sxm4-40gb")


def test_variables_that_change_how_ranks_train_are_conditions(tmp_path, monkeypatch):
    variables = {
        "NCCL_ALGO": "Ring",
        "NVIDIA_TF32_OVERRIDE": "0",
        "PYTORCH_ALLOC_CONF": "expandable_segments:True",
        "TORCH_NCCL_BLOCKING_WAIT": "1",
        "CUDA_LAUNCH_BLOCKING": "1",
        "CUDA_DEVICE_MAX_CONNECTIONS": "1",
        "CUDA_MODULE_LOADING": "EAGER",
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        "CUBLASLT_WORKSPACE_SIZE": "4096",
        "CUDNN_LOGLEVEL_DBG": "3",
        "PYTORCH_NO_CUDA_MEMORY_CACHING": "1",
        "OMP_NUM_THREADS": "4",
    }
    of_torch = {"TORCH_DISTRIBUTED_DEBUG": "DETAIL", "TORCHINDUCTOR_MAX_AUTOTUNE": "1"}
    for name in [name for name in os.environ if name.startswith(("OMP_", "TORCH", "CU", "NCCL"))]:
        monkeypatch.delenv(name)
    strange = {"NCCLX": "no", "MY_NCCL_ALGO": "no", "CUDA_HOME": "no", "NCCL_DEBUG": "logs only"}
    for name, value in {**variables, **of_torch, **strange}.items():
        monkeypatch.setenv(name, value)
    capacity = make_capacity(MACHINE)

    on_gpu = describe_environment(capacity, "gpu", RUNTIME, tmp_path).variables
    on_cpu = describe_environment(capacity, "cpu", RUNTIME, tmp_path).variables
    assert on_gpu == {**variables, **of_torch}
    assert on_cpu == of_torch


def test_a_session_over_several_nodes_has_their_hosts():
    one, across = make_case(), make_case(world_size=4, nodes=2)
    environment = make_environment()

    found = with_launches(environment, [make_measurement(c, [0.01, 0.02]) for c in (one, across)])

    assert (found.nodes, found.hosts) == (2, "a b")
    assert with_launches(environment, [make_measurement(one, [0.01])]) == environment


def on_pcie(case, *links, **launch):
    """A measurement whose ranks had these links."""
    measured = make_measurement(case, [0.01])
    (one,) = measured.launches
    ranks = tuple(
        msgspec.structs.replace(rank, load=GpuLoad(pcie_generation=generation, pcie_width=lanes))
        for rank, (generation, lanes) in zip(one.ranks, links, strict=True)
    )
    one = msgspec.structs.replace(one, ranks=ranks, **launch)
    return msgspec.structs.replace(measured, launches=(one,))


def test_the_link_of_each_gpu_is_its_best_reading_and_of_several_nodes_the_slowest():
    one, two = make_case(world_size=1), make_case(world_size=2)
    across = make_case(world_size=4, nodes=2)

    idle = on_pcie(one, (1, 16)), on_pcie(two, (4, 16), (3, 8))
    unknown = on_pcie(two, (4, 16), (None, 8))
    nodes = on_pcie(across, (4, 16), (4, 16), (4, 16), (4, 8))

    assert with_launches(make_environment(), idle).pcie == "4x16 3x8"
    assert with_launches(make_environment(), [unknown]).pcie == "4x16"
    assert with_launches(make_environment(), [nodes]).pcie == "4x16 4x8"


def test_the_transports_of_nccl_are_those_that_any_launch_printed():
    two, across = make_case(world_size=2), make_case(world_size=4, nodes=2)
    printed = [
        KeptOutput(directory="d", nccl=NcclChoice(transports=names))
        for names in (("P2P/CUMEM",), ("NET/IB", "P2P/CUMEM"))
    ]

    found = with_launches(
        make_environment(),
        [
            on_pcie(two, *[(None, None)] * 2, output=printed[0]),
            on_pcie(across, *[(None, None)] * 4, output=printed[1]),
            make_measurement(make_case(world_size=3), [0.01]),
        ],
    )

    assert found.transports == {
        "2 ranks": "P2P/CUMEM",
        "4 ranks on 2 nodes": "NET/IB P2P/CUMEM",
    }


def test_of_several_nodes_the_weakest_is_described():
    across = make_case(world_size=4, nodes=2)
    first = hardware_of(make_gpu_machine(*["A"] * 3, nvlinks=12, power_limit_w=400.0, ecc=False))
    other = hardware_of(
        make_gpu_machine(*["A"] * 3, pcie="SYS", power_limit_w=300.0, ecc=True), "9 x IB"
    )
    measured = on_pcie(across, *[(None, None)] * 4, node_hardware=(first, other))

    found = with_launches(make_environment(power_limit_w=400.0, links="NV12 NV12"), [measured])

    assert (found.power_limit_w, found.ecc, found.links) == (300.0, True, "SYS SYS")
    assert found.networks == "9 x IB"


def test_the_libraries_and_the_files_of_nccl_are_conditions(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".nccl.conf").write_text("# mine\nNCCL_ALGO=Ring\nNCCL_NTHREADS = 64\n")
    set_here = {"NCCL_ALGO": "Tree", "FI_PROVIDER": "efa", "UCX_TLS": "rc", "LD_LIBRARY_PATH": "/x"}
    for name, value in set_here.items():
        monkeypatch.setenv(name, value)
    here = make_capacity(MACHINE)
    elsewhere = msgspec.structs.replace(
        here, node=Host(name="n", os="o", cpu="c", cores=1, quota=None)
    )

    found = describe_environment(here, "gpu", RUNTIME, tmp_path).variables

    assert found.items() >= {**set_here, "NCCL_NTHREADS": "64"}.items()
    there = describe_environment(elsewhere, "gpu", RUNTIME, tmp_path).variables
    assert "LD_LIBRARY_PATH" not in there  # a pod has its own
    assert "NCCL_NTHREADS" not in describe_environment(here, "cpu", RUNTIME, tmp_path).variables
