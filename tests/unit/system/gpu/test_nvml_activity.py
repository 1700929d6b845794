"""Counters of a GPU's traffic, and the samples that the driver took in a period."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import pynvml
import pytest

from ddp_perf.core.gpu import GpuHealth
from ddp_perf.core.launch import GpuTraffic, GpuUse
from ddp_perf.system.gpu.nvml_activity import GpuCounters, read_counters, read_use
from tests.builders import make_gpu_machine
from tests.recordings import FakeNvml, RecordedReader, card_uuid

MACHINE = make_gpu_machine("NVIDIA H200", memory=2**37)
UUID = MACHINE.gpus[0].uuid
BUSY, MEMORY_BUSY, CLOCK = (
    pynvml.NVML_GPU_UTILIZATION_SAMPLES,
    pynvml.NVML_MEMORY_UTILIZATION_SAMPLES,
    pynvml.NVML_PROCESSOR_CLK_SAMPLES,
)
COUNTERS = {
    pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX: 100,
    pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX: 200,
    pynvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES: 3_000,
    pynvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES: 4_000,
}


def install(patch, *, value_type=pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, samples=None):
    """Install a driver with COUNTERS, and with (time, value) pairs of each kind of ``samples``."""
    FakeNvml(MACHINE, [GpuHealth(uuid=UUID, memory_used=2**32)]).install(patch)

    def field_values(handle, wanted):
        if wanted == [269, 270]:  # of heat
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return [
            SimpleNamespace(
                nvmlReturn=pynvml.NVML_SUCCESS,
                valueType=value_type,
                value=SimpleNamespace(ullVal=COUNTERS[field]),
            )
            for field, scope in wanted
            if scope == (2**32 - 1 if field in (138, 139) else 0)  # all links together
        ]

    def driver_samples(handle, kind, since_us):
        if not (samples or {}).get(kind):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return pynvml.NVML_VALUE_TYPE_UNSIGNED_INT, [
            SimpleNamespace(timeStamp=at_us, sampleValue=SimpleNamespace(uiVal=value))
            for at_us, value in samples[kind]
        ]

    patch.setattr(pynvml, "nvmlDeviceGetFieldValues", field_values)
    patch.setattr(pynvml, "nvmlDeviceGetSamples", driver_samples)


def test_traffic_is_in_bytes_and_that_of_nvlink_over_all_links(monkeypatch):
    install(monkeypatch)

    assert read_counters(UUID).traffic == GpuTraffic(
        pcie_sent=3_000, pcie_received=4_000, nvlink_sent=102_400, nvlink_received=204_800
    )


def test_the_counters_of_a_gpu_are_those_of_its_health(monkeypatch):
    now = GpuHealth(uuid=UUID, heat_s=2.0, energy_j=5e5, ecc_uncorrected=1, temperature_c=60)
    FakeNvml(MACHINE, [now]).install(monkeypatch)

    assert read_counters(UUID) == GpuCounters(heat_s=2.0, energy_j=5e5, ecc_uncorrected=1)
    assert read_counters("GPU-9") == GpuCounters()


def test_a_counter_of_32_bits_is_unknown_since_it_begins_again_within_a_launch(monkeypatch):
    install(monkeypatch, value_type=pynvml.NVML_VALUE_TYPE_UNSIGNED_INT)

    assert read_counters(UUID).traffic == GpuTraffic()


def test_the_use_is_the_mean_of_the_samples_within_the_period(monkeypatch):
    install(
        monkeypatch,
        samples={
            BUSY: [(99, 0), (150, 80), (200, 90), (201, 0)],
            MEMORY_BUSY: [(150, 40)],
            CLOCK: [(150, 1500), (160, 1600)],
        },
    )

    assert read_use(UUID, 100, 200) == GpuUse(
        busy=0.85, memory_busy=0.4, sm_clock_mhz=1550, memory_used=2**32
    )


@pytest.mark.parametrize("samples", [{}, {BUSY: [(50, 80)]}], ids=["none", "older ones"])
def test_a_period_without_a_sample_has_no_busy_share(samples, monkeypatch):
    """It is shorter than the driver's sample period: 0 would mean an idle GPU."""
    install(monkeypatch, samples=samples)

    assert read_use(UUID, 100, 200) == GpuUse(memory_used=2**32)


@pytest.mark.parametrize(
    "name", ["nvmlInit", "nvmlDeviceGetHandleByUUID", "nvmlDeviceGetFieldValues"]
)
@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_GPU_IS_LOST])
def test_without_an_answer_the_traffic_is_unknown(name, code, monkeypatch):
    def fail(*arguments):
        raise pynvml.NVMLError(code)

    install(monkeypatch)
    monkeypatch.setattr(pynvml, name, fail)

    assert read_counters(UUID).traffic == GpuTraffic()


@pytest.mark.parametrize("name", ["nvmlDeviceGetFieldValues", "nvmlDeviceGetSamples"])
def test_a_function_that_pynvml_lacks_leaves_its_reading_unknown(name, monkeypatch):
    install(monkeypatch, samples={BUSY: [(150, 80)]})
    monkeypatch.delattr(pynvml, name)

    known = (read_counters(UUID).traffic != GpuTraffic(), read_use(UUID, 100, 200).busy is not None)

    assert known == (name != "nvmlDeviceGetFieldValues", name != "nvmlDeviceGetSamples")


def test_a_slice_has_its_own_memory_and_nothing_of_its_card(monkeypatch):
    """The card's counters and samples are those of all its slices together."""
    machine = RecordedReader.of("a100-mig").machine()
    gpu = machine.gpus[0]
    install(monkeypatch, samples={BUSY: [(150, 80)]})
    fake = FakeNvml(machine, [GpuHealth(uuid=gpu.uuid, memory_used=2**30)])
    for name in dir(pynvml):
        if name.startswith("nvmlDevice") and hasattr(fake, f"_{name}"):
            monkeypatch.setattr(pynvml, name, getattr(fake, f"_{name}"))

    for uuid in (gpu.uuid, card_uuid(gpu)):
        assert read_counters(uuid).traffic == GpuTraffic()
    assert read_use(gpu.uuid, 100, 200) == GpuUse(memory_used=2**30)
    assert read_use(card_uuid(gpu), 100, 200) == GpuUse()


def test_a_gpu_without_memory_information_has_its_other_readings(monkeypatch):
    gpus = (msgspec.structs.replace(MACHINE.gpus[0], memory=None),)
    install(monkeypatch, samples={BUSY: [(150, 80)]})
    fake = FakeNvml(msgspec.structs.replace(MACHINE, gpus=gpus))
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByUUID", fake._nvmlDeviceGetHandleByUUID)

    assert read_use(UUID, 100, 200) == GpuUse(busy=0.8)
