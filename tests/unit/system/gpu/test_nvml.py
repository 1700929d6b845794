"""NVML's readings are plain values. Any of them may be missing, which is no error."""

from __future__ import annotations

import msgspec
import pynvml
import pytest
from hypothesis import given, settings

from ddp_perf.core.gpu import GpuHealth, GpuProcess
from ddp_perf.system.gpu import nvml
from ddp_perf.system.gpu.nvml import NvmlReader, cores_near, read_health
from tests.builders import make_gpu, make_gpu_machine
from tests.recordings import RECORDED, FakeNvml, RecordedReader
from tests.strategies import gpu_machines


@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_machine_is_read_as_it_was_recorded(name, monkeypatch):
    recorded = RecordedReader.of(name)
    machine = recorded.machine()
    healths = recorded.health(machine.gpus)
    fake = FakeNvml(machine, healths).install(monkeypatch)

    assert NvmlReader().machine() == machine
    assert NvmlReader().health(machine.gpus) == healths
    assert cores_near(machine.gpus[0].uuid) == machine.gpus[0].cores
    assert fake.open == 0


@settings(max_examples=20)
@given(machine=gpu_machines())
def test_any_machine_is_read_unchanged(machine, monkeypatch):
    with monkeypatch.context() as patch:
        FakeNvml(machine).install(patch)

        assert NvmlReader().machine() == machine


def test_a_lost_gpu_is_a_problem_and_the_others_are_read(monkeypatch):
    machine = make_gpu_machine("Tesla T4", "Tesla T4", "Tesla T4")
    FakeNvml(machine, lost=[1]).install(monkeypatch)

    found = NvmlReader().machine()

    assert [gpu.index for gpu in found.gpus] == [0, 2]
    assert [(link.first, link.second) for link in found.links] == [(0, 2)]
    assert found.problem == "GPU 1: GPU is lost"


def test_mig_without_a_slice_is_no_gpu(monkeypatch):
    FakeNvml(make_gpu_machine("NVIDIA A100-SXM4-40GB")).install(monkeypatch)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetMigMode", lambda handle: [1, 1])

    found = NvmlReader().machine()

    assert found.gpus == ()
    assert found.problem == "GPU 0: MIG is on, but there is no slice"


def test_a_link_without_nvlink_is_the_pcie_path(monkeypatch):
    machine = make_gpu_machine(*["NVIDIA H200"] * 2, nvlinks=18, pcie="SYS")
    FakeNvml(machine).install(monkeypatch)

    def refuse(handle, link):
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NO_PERMISSION)

    monkeypatch.setattr(pynvml, "nvmlDeviceGetNvLinkState", refuse)

    assert NvmlReader().machine().interconnect == "SYS"


def test_nvlinks_with_hidden_ends_are_counted_if_the_driver_uses_them_between_the_gpus(monkeypatch):
    """In a virtual machine NVML may refuse the other end of a link."""
    machine = make_gpu_machine(*["NVIDIA A100-SXM4-40GB"] * 2, nvlinks=12, pcie="SYS")
    FakeNvml(machine).install(monkeypatch)

    def refuse(handle, link):
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    for name in ("nvmlDeviceGetNvLinkRemoteDeviceType", "nvmlDeviceGetNvLinkRemotePciInfo"):
        monkeypatch.setattr(pynvml, name, refuse)
    seen = NvmlReader().machine().interconnect
    monkeypatch.setattr(pynvml, "nvmlDeviceGetP2PStatus", FakeNvml(machine)._unsupported)

    assert seen == "NV12"
    assert NvmlReader().machine().interconnect == "SYS"


@pytest.mark.parametrize(
    ("status", "access"),
    [
        (pynvml.NVML_P2P_STATUS_OK, True),
        (pynvml.NVML_P2P_STATUS_CHIPSET_NOT_SUPPORTED, False),
        (pynvml.NVML_P2P_STATUS_DISABLED_BY_REGKEY, False),
        (pynvml.NVML_P2P_STATUS_UNKNOWN, None),
    ],
)
def test_peer_access_is_what_the_driver_reports_and_unknown_stays_unknown(
    status, access, monkeypatch
):
    FakeNvml(make_gpu_machine("Tesla T4", "Tesla T4")).install(monkeypatch)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetP2PStatus", lambda *pair_and_capability: status)

    assert NvmlReader().machine().peer_access == (access,)


@pytest.mark.parametrize(
    ("error", "device", "problem"),
    [
        (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, None, None),
        (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, None, None),
        (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, "a driver is loaded", "although a driver is loaded"),
        (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, "there is /dev/nvidia0", "there is /dev/nvidia0"),
        (pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, "a driver is loaded", "version mismatch"),
        (pynvml.NVML_ERROR_UNKNOWN, "a driver is loaded", "Unknown Error"),
    ],
)
def test_without_nvml_there_are_no_gpus_and_a_problem_if_there_is_a_device(
    error, device, problem, monkeypatch
):
    def fail():
        raise pynvml.NVMLError(error)

    monkeypatch.setattr(nvml, "nvidia_device", lambda: device)
    monkeypatch.setattr(pynvml, "nvmlInit", fail)

    found = NvmlReader().machine()

    assert found.gpus == ()
    assert (problem in found.problem) if problem else found.problem is None
    assert NvmlReader().health([make_gpu()]) == (GpuHealth(uuid=make_gpu().uuid),)
    assert cores_near("GPU-0") == ()


def test_health_that_a_card_does_not_report_is_none(monkeypatch):
    machine = make_gpu_machine("Tesla T4")
    FakeNvml(machine).install(monkeypatch)
    monkeypatch.setattr(
        pynvml, "nvmlDeviceGetCurrentClocksThrottleReasons", FakeNvml(machine)._unsupported
    )

    (health,) = NvmlReader().health(machine.gpus)

    assert health == GpuHealth(uuid=machine.gpus[0].uuid)


@pytest.mark.parametrize(
    ("bits", "reasons"),
    [
        (pynvml.nvmlClocksThrottleReasonGpuIdle, ()),
        (pynvml.nvmlClocksThrottleReasonSwPowerCap, ("power cap",)),
        (
            pynvml.nvmlClocksThrottleReasonSwThermalSlowdown
            | pynvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown,
            ("heat (software)", "power brake"),
        ),
    ],
)
def test_throttle_reasons_are_words_without_idling(bits, reasons, monkeypatch):
    machine = make_gpu_machine("Tesla T4")
    FakeNvml(machine, throttle_bits=bits).install(monkeypatch)

    (health,) = NvmlReader().health(machine.gpus)

    assert health.throttle == reasons


def test_the_time_with_clocks_reduced_by_heat_is_in_seconds(monkeypatch):
    machine = make_gpu_machine("Tesla T4")
    uuid = machine.gpus[0].uuid
    FakeNvml(machine, [GpuHealth(uuid=uuid, heat_s=12.5)]).install(monkeypatch)

    assert read_health(uuid).heat_s == 12.5
    assert read_health("GPU-unknown") == GpuHealth(uuid="GPU-unknown")


def test_processes_on_a_gpu_have_pid_and_memory(monkeypatch):
    machine = make_gpu_machine("Tesla T4")
    processes = (GpuProcess(pid=4711, memory=2**30), GpuProcess(pid=4712, memory=None))
    health = GpuHealth(uuid=machine.gpus[0].uuid, processes=processes)
    gpus = [msgspec.structs.replace(machine.gpus[0], memory=2**34)]
    FakeNvml(msgspec.structs.replace(machine, gpus=tuple(gpus)), [health]).install(monkeypatch)

    assert NvmlReader().health(gpus)[0].processes == processes
