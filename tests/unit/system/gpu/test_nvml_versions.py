"""Any function of pynvml may be missing or fail: its readings are unknown, all others are read."""

from __future__ import annotations

import os
import runpy
from types import SimpleNamespace

import msgspec
import pynvml
import pytest

import ddp_perf.cli.inspect as command
from ddp_perf.core.gpu import GpuHealth, GpuProcess
from ddp_perf.system.gpu import nvml
from ddp_perf.system.gpu.nvml import (
    NvmlReader,
    cores_near,
    keep_open,
    nvml_uuid,
    read_health,
)
from ddp_perf.system.host.host import HostState
from ddp_perf.telemetry.conditions import conditions
from ddp_perf.telemetry.sample import Sampler
from tests.builders import FakeLauncher, make_gpu_machine
from tests.recordings import FakeNvml, RecordedReader

MACHINE = msgspec.structs.replace(
    make_gpu_machine(
        *["NVIDIA H200"] * 2,
        nvlinks=18,
        cores=(0, 1),
        memory=2**37,
        numa_node=0,
        power_limit_w=600.0,
        power_default_w=700.0,
        sm_clock_mhz=1980,
        sm_clock_default_mhz=1980,
        sm_clock_max_mhz=1980,
        pcie_generation_max=5,
        pcie_width_max=16,
        persistence=True,
        ecc=True,
    ),
    cuda_driver="12.8",
)
HEALTH = tuple(
    GpuHealth(
        uuid=gpu.uuid,
        throttle=("heat (software)",),
        heat_s=1.5,
        temperature_c=70,
        sm_clock_mhz=1500,
        memory_clock_mhz=2600,
        power_w=500.0,
        energy_j=1e6,
        ecc_corrected=3,
        ecc_uncorrected=0,
        pcie_generation=5,
        pcie_width=16,
        memory_used=0,
        processes=(GpuProcess(pid=7, memory=None),),
    )
    for gpu in MACHINE.gpus
)
UUID = MACHINE.gpus[0].uuid
SOFTWARE_HEAT = 0x20
ERRORS = [
    pynvml.NVMLLibraryMismatchError("older driver"),
    *(pynvml.NVMLError(code) for code in sorted(pynvml.NVMLError._valClassMapping)),
]


def install(patch):
    patch.setattr(nvml, "nvidia_device", lambda: "a driver is loaded")
    FakeNvml(MACHINE, HEALTH, throttle_bits=SOFTWARE_HEAT).install(patch)


def asked():
    """Return the names of all functions that are called if none is missing."""
    names = set()
    with pytest.MonkeyPatch.context() as patch:
        install(patch)
        for name in dir(pynvml):
            if name.startswith("nvml") and callable(function := getattr(pynvml, name)):
                patch.setattr(pynvml, name, noting(names, name, function))
        NvmlReader().machine()
        NvmlReader().health(MACHINE.gpus)
        cores_near(UUID)
    return sorted(names)


def noting(names, name, function):
    def noted(*arguments):
        names.add(name)
        return function(*arguments)

    return noted


FUNCTIONS = asked()


def failing(error):
    def fail(*arguments):
        raise error

    return fail


REQUIRED = {"GpuHealth": ["uuid"], "Gpu": ["index", "uuid", "name", "compute_capability"]}


def unknown_or_equal(found, full):
    """Return whether each field has its usual value or its default, which means unknown."""
    plain = type(full)(**{name: getattr(full, name) for name in REQUIRED[type(full).__name__]})
    return all(
        getattr(found, name) in (getattr(full, name), getattr(plain, name))
        for name in full.__struct_fields__
    )


def survives():
    """Return the results of everything that reads GPUs."""
    machine = NvmlReader().machine()
    assert len(machine.gpus) == len(MACHINE.gpus) or machine.problem
    for found in machine.gpus:
        (full,) = [gpu for gpu in MACHINE.gpus if gpu.uuid == found.uuid]
        assert unknown_or_equal(found, full)
    for health, full_health in zip(NvmlReader().health(MACHINE.gpus), HEALTH, strict=True):
        assert unknown_or_equal(health, full_health)
    assert cores_near(UUID) in ((), (0, 1))


def test_every_field_is_read_if_no_function_fails(monkeypatch):
    install(monkeypatch)

    assert NvmlReader().machine() == MACHINE
    assert NvmlReader().health(MACHINE.gpus) == HEALTH
    assert len(FUNCTIONS) > 30


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_that_pynvml_lacks_leaves_its_reading_unknown(name, monkeypatch):
    install(monkeypatch)
    monkeypatch.delattr(pynvml, name)

    survives()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_that_raises_any_of_pynvmls_errors_leaves_its_reading_unknown(name, monkeypatch):
    install(monkeypatch)
    for error in ERRORS:
        monkeypatch.setattr(pynvml, name, failing(error))

        survives()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_doctor_and_a_rank_use_the_other_readings(name, monkeypatch):
    install(monkeypatch)
    host = HostState(name="node7", cpu="Some Processor", cores=(0, 1))
    monkeypatch.setattr(command, "read_host_state", lambda: host)
    monkeypatch.setattr(command, "ServerLauncher", FakeLauncher)
    for break_it in (
        lambda: monkeypatch.setattr(pynvml, name, failing(ERRORS[0])),
        lambda: monkeypatch.delattr(pynvml, name),
    ):
        break_it()

        assert command.diagnose(NvmlReader()).abilities
        sampler = Sampler(sorted(os.sched_getaffinity(0)), pinned=False, gpu=UUID)
        first = sampler.read()
        found = conditions(first, sampler.read_after(first), pinned=False)
        assert found.gpu_errors in (None, False)


def test_the_module_can_be_imported_without_pynvmls_older_names(monkeypatch):
    for name in dir(pynvml):
        if "ThrottleReason" in name or "PERF_POLICY" in name:
            monkeypatch.delattr(pynvml, name)

    assert runpy.run_path(nvml.__file__)["NvmlReader"]


@pytest.mark.parametrize(
    ("newer", "older"),
    [
        ("nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature"),
        (
            "nvmlDeviceGetCurrentClocksEventReasons",
            "nvmlDeviceGetCurrentClocksThrottleReasons",
        ),
        (
            "nvmlDeviceGetComputeRunningProcesses",
            "nvmlDeviceGetComputeRunningProcesses_v2",
        ),
    ],
)
def test_either_name_of_a_function_is_used(newer, older, monkeypatch):
    install(monkeypatch)
    function = getattr(pynvml, newer if hasattr(FakeNvml, f"_{newer}") else older)
    for present, absent in ((newer, older), (older, newer)):
        monkeypatch.setattr(pynvml, present, function, raising=False)
        monkeypatch.delattr(pynvml, absent)

        assert read_health(UUID) == HEALTH[0]
        monkeypatch.setattr(pynvml, absent, function, raising=False)


def fields(**seconds):
    """The result of nvmlDeviceGetFieldValues; None: not supported."""

    def answer(handle, wanted):
        assert wanted == [269, 270]
        return [
            SimpleNamespace(
                nvmlReturn=pynvml.NVML_ERROR_NOT_SUPPORTED if value is None else 0,
                value=SimpleNamespace(ullVal=round((value or 0) * 1e9)),
            )
            for value in seconds.values()
        ]

    return answer


@pytest.mark.parametrize(
    ("software", "hardware", "heat_s"),
    [(2.0, 0.5, 2.0), (None, 0.5, 0.5), (0.0, 0.0, 0.0), (None, None, 1.5)],
    ids=["the longer of both", "one alone", "cool", "the older counter"],
)
def test_heat_is_read_from_the_newer_counters_if_they_exist(
    software, hardware, heat_s, monkeypatch
):
    install(monkeypatch)
    monkeypatch.setattr(
        pynvml, "nvmlDeviceGetFieldValues", fields(software=software, hardware=hardware)
    )

    assert read_health(UUID).heat_s == heat_s


def on_mig(monkeypatch):
    """The recorded A100 with slices. The counters of the card are those of all slices."""
    machine = RecordedReader.of("a100-mig").machine()
    slice_, card = machine.gpus[0].uuid, f"GPU-card-{machine.gpus[0].index}"
    processes = tuple(GpuProcess(pid=pid, memory=None) for pid in (1, 2, 3))
    now = {"sm_clock_mhz": 1410, "temperature_c": 60, "energy_j": 5e5, "power_w": 300.0}
    FakeNvml(
        machine,
        [
            GpuHealth(uuid=card, processes=processes, memory_used=2**33, heat_s=2.0, **now),
            GpuHealth(uuid=slice_, processes=processes[:1], energy_j=5e5, power_w=300.0),
        ],
    ).install(monkeypatch)
    return slice_, card


def test_a_slice_has_the_clocks_and_heat_of_its_card_and_its_own_processes(monkeypatch):
    slice_, _ = on_mig(monkeypatch)

    found = read_health(slice_)

    assert (found.sm_clock_mhz, found.temperature_c, found.heat_s) == (1410, 60, 2.0)
    assert [process.pid for process in found.processes] == [1]


def test_a_slice_has_no_energy_of_its_card(monkeypatch):
    for uuid in on_mig(monkeypatch):
        found = read_health(uuid)

        assert (found.energy_j, found.power_w) == (None, None)


def test_processes_on_other_slices_do_not_disturb_a_rank(monkeypatch):
    _, card = on_mig(monkeypatch)

    found = read_health(card)

    assert (found.processes, found.memory_used) == (None, None)


@pytest.mark.parametrize("mask", [None, "0"])
def test_a_slice_is_found_by_its_own_uuid_and_by_that_of_its_card(monkeypatch, mask):
    """It depends on the version of CUDA which UUID it gives."""
    slice_, card = on_mig(monkeypatch)

    assert nvml_uuid(slice_.removeprefix("MIG-"), mask) == slice_
    assert nvml_uuid(card.removeprefix("GPU-"), mask) == slice_


def test_the_slice_in_the_mask_is_found_among_several(monkeypatch):
    _, card = on_mig(monkeypatch)
    second = RecordedReader.of("a100-mig").machine().gpus[1].uuid

    assert nvml_uuid(card.removeprefix("GPU-"), second[:12]) == second
    assert nvml_uuid(card.removeprefix("GPU-"), f"{second},{card}") == second


def test_a_whole_gpu_and_a_gpu_unknown_to_nvml_keep_their_uuid(monkeypatch):
    FakeNvml(make_gpu_machine("NVIDIA H200")).install(monkeypatch)

    assert nvml_uuid("0abc-0000", None) == "GPU-0abc-0000"
    assert nvml_uuid("9abc-0000", None) == "GPU-9abc-0000"


def test_keep_open_avoids_an_initialisation_for_each_reading(monkeypatch):
    fake = FakeNvml(make_gpu_machine("NVIDIA H200")).install(monkeypatch)
    keep_open()

    read_health("GPU-0abc-0000")

    assert fake.open == 1


def test_keep_open_uses_the_gpus_that_it_names(monkeypatch):
    """Without persistence only a handle keeps a GPU initialised."""
    fake = FakeNvml(make_gpu_machine("NVIDIA H200", "NVIDIA H200")).install(monkeypatch)
    used = []
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByUUID", used.append)

    keep_open(["GPU-0abc-0000", "GPU-1abc-0000"])

    assert (used, fake.open) == (["GPU-0abc-0000", "GPU-1abc-0000"], 1)


def test_the_cores_near_a_slice_are_those_near_its_card(monkeypatch):
    slice_, _ = on_mig(monkeypatch)
    machine = RecordedReader.of("a100-mig").machine()

    assert cores_near(slice_) == machine.gpus[0].cores
