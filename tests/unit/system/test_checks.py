"""Noise sources are reported with a remedy; a fit machine has none."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings

from ddp_perf.core.gpu import GpuHealth, GpuLoad, GpuMachine, GpuProcess
from ddp_perf.errors import LeaseError
from ddp_perf.system import checks as spoilers
from ddp_perf.system.checks import (
    clock_advice,
    faults_under_load,
    gpu_spoilers,
    host_spoilers,
    variable_spoilers,
)
from ddp_perf.system.host.host import HostState, read_host_state
from tests.builders import make_gpu, make_gpu_machine
from tests.recordings import RecordedReader
from tests.strategies import gpu_machines

ALL_CORES = range(1024)


def of_gpu(health=None, **changes):
    """Return the noise sources of a GPU that differs from a fit one by ``changes``."""
    gpu = make_gpu(**changes)
    health = GpuHealth(uuid=gpu.uuid, **(health or {}))
    found = gpu_spoilers(GpuMachine(gpus=(gpu,), driver="570.1"), [health], ALL_CORES)
    return [str(spoiler) for spoiler in found]


@pytest.mark.parametrize(
    "name", ["v100-pcie-pair", "a100-pcie-bridges", "a100-sxm4-nvswitch", "h200"]
)
def test_a_fit_recorded_machine_has_no_noise_sources(name):
    reader = RecordedReader.of(name)
    machine = reader.machine()

    assert list(gpu_spoilers(machine, reader.health(machine.gpus), ALL_CORES)) == []


def test_memory_of_hidden_processes_is_found_on_the_recorded_t4s():
    reader = RecordedReader.of("t4-pair")
    machine = reader.machine()

    found = [str(s) for s in gpu_spoilers(machine, reader.health(machine.gpus), ALL_CORES)]

    assert [text[:24] for text in found] == [
        "GPU 0: 2.7 GiB are in us",
        "GPU 1: 5.5 GiB are in us",
    ]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"persistence": False}, "nvidia-smi -i 0 -pm 1"),
        (
            {"power_limit_w": 500.0, "power_default_w": 700.0},
            "power limit is 500 W (default: 700 W): nvidia-smi -i 0 -pl 700",
        ),
        (
            {"fabric": "in progress"},
            "not set up (in progress): CUDA error 802: start nvidia-fabric",
        ),
        ({"compute_mode": "prohibited"}, "its compute mode is prohibited: nvidia-smi -i 0 -c 0"),
        ({"health": {"remap_pending": True}}, "replaced at its next reset: end its processes"),
        ({"health": {"throttle": ("heat (hardware)",)}}, "reduced by heat (hardware)"),
        (
            {"health": {"processes": (GpuProcess(pid=4711, memory=2**30),)}},
            "process 4711 computes on it with 1.0 GiB",
        ),
        (
            {"health": {"processes": (), "memory_used": 3 * 2**30}},
            "3.0 GiB are in use",
        ),
        (
            {"health": {"pcie_width": 8}, "pcie_width_max": 16},
            "PCIe runs on 8 of 16 lanes",
        ),
        ({"health": {"ecc_uncorrected": 2}}, "2 memory errors that ECC could not correct"),
        ({"cores": (4000,)}, "this process may not use any core near it"),
    ],
)
def test_each_noise_source_of_a_gpu_is_reported_with_its_remedy(changes, said):
    (text,) = of_gpu(**changes)

    assert text.startswith("GPU 0: ")
    assert said in text


@pytest.mark.parametrize(
    "changes",
    [
        {"power_limit_w": 700.0, "power_default_w": 700.0},
        {"power_limit_w": 450.0, "power_default_w": 400.0},
        {"sm_clock_mhz": 990, "sm_clock_default_mhz": 1980},  # as labs do
        {"fabric": "completed", "compute_mode": "exclusive process"},
        {"health": {"remap_pending": False}},
        {"persistence": True},
        {"health": {"memory_used": 5 * 2**20, "processes": (), "throttle": ()}},
        {"health": {"pcie_width": 16, "pcie_generation": 1}, "pcie_width_max": 16},
    ],
)
def test_normal_settings_of_a_gpu_are_not_reported(changes):
    assert of_gpu(**changes) == []


@settings(max_examples=30)
@given(machine=gpu_machines())
def test_unknown_readings_of_a_gpu_are_not_reported(machine):
    unknown = [
        make_gpu(gpu.index, name=gpu.name, compute_capability=gpu.compute_capability)
        for gpu in machine.gpus
    ]
    machine = msgspec.structs.replace(machine, gpus=tuple(unknown))

    assert list(gpu_spoilers(machine, (), ALL_CORES)) == []


FULL = {"pcie_width_max": 16, "pcie_generation_max": 4, "sm_clock_max_mhz": 1400}


def under_load(load, **changes):
    """Return what slows a GPU down under this load."""
    gpu = make_gpu(**{**FULL, **changes})
    return list(faults_under_load(GpuMachine(gpus=(gpu,)), {gpu.uuid: GpuLoad(**load)}))


@pytest.mark.parametrize(
    ("load", "changes", "said"),
    [
        ({"pcie_width": 4}, {}, "GPU 0: PCIe runs on 4 of 16 lanes"),
        ({"pcie_width": 4}, {"pcie_width_max": 4}, "GPU 0: PCIe runs on 4 lanes"),
        ({"pcie_generation": 1}, {}, "GPU 0: PCIe runs at generation 1 of 4"),
        (
            {"sm_clock_mhz": 300, "throttle": ("heat (hardware)", "power cap")},
            {},
            "GPU 0: its clocks are reduced by heat (hardware), power cap to 300 of 1400 MHz",
        ),
        ({"throttle": ("power brake",)}, {}, "GPU 0: its clocks are reduced by power brake"),
        ({"sm_clock_mhz": 700}, {}, "GPU 0: its clock under load is 700 of 1400 MHz"),
        (
            {},
            {"power_limit_w": 200.0, "power_default_w": 400.0},
            "GPU 0: its power limit is 200 W (default: 400 W)",
        ),
    ],
)
def test_each_fault_under_load_is_one_line(load, changes, said):
    assert under_load(load, **changes) == [said]


@pytest.mark.parametrize(
    ("load", "changes"),
    [
        ({"sm_clock_mhz": 1390, "pcie_generation": 4, "pcie_width": 16, "throttle": ()}, {}),
        ({"pcie_generation": 4, "pcie_width": 16}, dict.fromkeys(FULL)),
        ({}, {"persistence": False}),  # it lengthens the start, and no step
    ],
)
def test_a_gpu_at_full_speed_has_no_fault(load, changes):
    assert under_load(load, **changes) == []


def test_gpus_that_differ_are_reported_with_both_values():
    gpus = [make_gpu(0, power_limit_w=700.0), make_gpu(1, name="Tesla T4", power_limit_w=70.0)]

    found = gpu_spoilers(GpuMachine(gpus=tuple(gpus)), (), ALL_CORES)

    assert [spoiler.what.partition(":")[0] for spoiler in found] == [
        "the GPUs have different models (NVIDIA H200, Tesla T4)",
        "the GPUs have different power limits (70.0, 700.0)",
    ]


def test_the_lock_of_clocks_is_advised_where_no_lower_clock_is_set():
    gpus = make_gpu(0, sm_clock_mhz=990, sm_clock_default_mhz=1980), make_gpu(1), make_gpu(2)

    assert "nvidia-smi -i 1,2 -lgc" in clock_advice(GpuMachine(gpus=gpus))
    assert clock_advice(GpuMachine(gpus=gpus[:1])) is None
    assert clock_advice(GpuMachine(gpus=())) is None


@pytest.mark.parametrize(
    ("name", "fabric"),
    [
        ("NVIDIA A100-SXM4-40GB", None),
        ("NVIDIA H100 80GB HBM3", "completed"),
        ("NVIDIA H200", "completed"),
    ],
)
def test_missing_nvlink_is_reported_on_boards_that_have_it(name, fabric):
    machine = make_gpu_machine(name, name, pcie="SYS", fabric=fabric)

    (found,) = gpu_spoilers(machine, (), ALL_CORES)

    assert found.what == "NVLink should connect the GPUs, but NVML reports SYS between them"


def test_a_problem_of_nvml_is_reported():
    machine = GpuMachine(gpus=(), problem="GPU 3: GPU is lost")

    assert [s.what for s in gpu_spoilers(machine, (), ALL_CORES)] == ["NVML: GPU 3: GPU is lost"]


FIT = HostState(
    name="host",
    cpu="Some Processor",
    cores=(0, 1, 2, 3),
    governor="performance",
    busy=0.1,
    cpu_quota=4.0,
    shared_memory=2**33,
)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"governor": "powersave"}, "the CPU frequency governor is powersave: cpupower"),
        ({"busy": 3.2}, "3.2 of 4 cores work for other processes now: find the processes with top"),
        ({"cpu_quota": 1.5}, "the CPU quota is the time of 1.5 cores, for 4 cores"),
        ({"shared_memory": 64 * 2**20}, "only 64 MiB are free in /dev/shm"),
    ],
)
def test_each_noise_source_of_the_host_is_reported_with_its_remedy(changes, said):
    (found,) = host_spoilers(msgspec.structs.replace(FIT, **changes))

    assert said in str(found)


def test_a_fit_host_and_one_without_readings_have_no_noise_sources():
    silent = HostState(name="host", cpu="Some Processor", cores=(0,))

    assert list(host_spoilers(FIT)) == []
    assert list(host_spoilers(silent)) == []


@pytest.mark.parametrize(
    "variables",
    [
        {"CUDA_LAUNCH_BLOCKING": "1"},
        {"PYTORCH_NO_CUDA_MEMORY_CACHING": "0"},
        {"TORCH_DISTRIBUTED_DEBUG": "detail"},
    ],
)
def test_each_variable_of_debugging_is_reported_with_its_remedy(variables):
    (name,) = variables

    (found,) = variable_spoilers(variables, has_gpus=True)

    assert found.what.startswith(name)
    assert found.remedy == f"unset {name}"


@pytest.mark.parametrize(
    ("variables", "has_gpus"),
    [
        ({"CUDA_LAUNCH_BLOCKING": "0", "TORCH_DISTRIBUTED_DEBUG": "OFF"}, True),
        ({"CUDA_LAUNCH_BLOCKING": "1", "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}, False),
    ],
    ids=["off", "no GPU"],
)
def test_a_variable_without_effect_here_is_not_reported(variables, has_gpus):
    assert list(variable_spoilers(variables, has_gpus=has_gpus)) == []


def test_directories_that_cannot_be_written_are_reported(monkeypatch, tmp_path):
    def refuse():
        raise LeaseError("/tmp/leases: not writable; have its owner run chmod")

    monkeypatch.setattr(spoilers, "lease_directory", refuse)
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path / "none"))

    found = list(host_spoilers(FIT))

    assert [spoiler.what for spoiler in found] == [
        f"{tmp_path / 'none'}: cannot be written: No such file or directory",
        "/tmp/leases: not writable",
    ]


def test_the_state_of_this_host_can_be_read():
    host = read_host_state(wait=lambda: None)

    assert host.cores
    assert host.busy is None or 0 <= host.busy <= len(host.cores)
