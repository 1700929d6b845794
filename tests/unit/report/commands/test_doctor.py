"""The text and the JSON of ``ddp-perf doctor``."""

from __future__ import annotations

import msgspec
import pytest

from ddp_perf.core.gpu import GpuMachine
from ddp_perf.render.terminal import text_of
from ddp_perf.render.units import to_json
from ddp_perf.report.commands.doctor import (
    Diagnosis,
    abilities,
    diagnosis_parts,
    health_command,
    topology_rows,
)
from ddp_perf.system.checks import Spoiler
from ddp_perf.system.gpu.gpus import find_gpus
from ddp_perf.system.host.host import HostState
from tests.builders import RUNTIME, make_gpu_machine
from tests.recordings import RECORDED, RecordedReader

HOST = HostState(name="node7", cpu="Some Processor", cores=(0, 1, 2, 3, 8))


def doctor_text(*arguments, **options):
    return text_of(diagnosis_parts(diagnosis(*arguments, **options)), 80)


def diagnosis(reader, runtime=RUNTIME, spoilers=(), mask=None):
    machine = find_gpus({} if mask is None else {"CUDA_VISIBLE_DEVICES": mask}, reader)
    return Diagnosis(
        host=HOST,
        machine=machine,
        health=reader.health(machine.gpus),
        cuda_visible_devices=mask,
        runtime=runtime,
        abilities=tuple(abilities(machine, HOST, runtime)),
        spoilers=tuple(spoilers),
    )


def test_topology_of_recorded_bridges_matches_nvidia_smi():
    rows = topology_rows(RecordedReader.of("a100-pcie-bridges").machine())

    assert ["  ".join(row) for row in rows] == [
        "  GPU0  GPU1  GPU2  GPU3  cores  NUMA node",
        "GPU0  X  NV12  SYS  SYS  0-27,56-83  0",
        "GPU1  NV12  X  SYS  SYS  0-27,56-83  0",
        "GPU2  SYS  SYS  X  NODE  28-55,84-111  1",
        "GPU3  SYS  SYS  NODE  X  28-55,84-111  1",
    ]


def test_the_text_of_two_gpus_in_the_order_of_ranks(file_regression):
    spoiler = Spoiler(what="it is hot", remedy="cool it")

    text = doctor_text(RecordedReader.of("a100-pcie-bridges"), mask="2,0", spoilers=[spoiler])
    file_regression.check(text, extension=".txt", encoding="utf-8")


@pytest.mark.parametrize("name", RECORDED)
def test_every_recorded_machine_has_a_text_and_a_json_that_can_be_replayed(name):
    shown = diagnosis(RecordedReader.of(name))

    text = text_of(diagnosis_parts(shown), 120)
    again = msgspec.json.decode(to_json(shown), type=Diagnosis)

    assert again == shown
    for rank, gpu in enumerate(shown.machine.gpus):
        assert any(line.startswith(f"{rank} ") and gpu.name in line for line in text.splitlines())
    assert "nothing here would spoil a measurement" in text


def test_missing_gpu_readings_are_dashes():
    text = doctor_text(RecordedReader(make_gpu_machine("Tesla T4")))

    row = next(line for line in text.splitlines() if line.startswith("0 "))
    assert row.split() == ["0", "Tesla", "T4", *["–"] * 8]


@pytest.mark.parametrize(
    ("gpus", "tests"),
    [
        (1, "test_target"),
        (2, "test_target and (ws1 or ws2)"),
        (6, "test_target and (ws1 or ws4)"),
        (16, "test_target and (ws1 or ws8)"),
    ],
)
def test_the_health_command_has_the_largest_suite_that_fits(gpus, tests):
    assert health_command(gpus) == (
        f'pytest -m gpu -k "{tests}" -o ddp_configs=bench_configs/health'
    )


def test_a_machine_that_cannot_run_the_gpu_tier_has_no_health_command():
    assert "bench_configs/health" not in doctor_text(RecordedReader(GpuMachine(gpus=())))


CPU_TORCH = msgspec.structs.replace(RUNTIME, cuda=None, nccl=None)
T4 = make_gpu_machine("Tesla T4")
NO_NCCL = msgspec.structs.replace(RUNTIME, nccl=None)


def test_abilities_state_a_reason_for_what_cannot_be_gated(file_regression):
    no_gpu, two = GpuMachine(gpus=()), make_gpu_machine("Tesla T4", "Tesla T4")
    one_core = msgspec.structs.replace(HOST, cores=(3,))
    old_driver = msgspec.structs.replace(T4, cuda_driver="12.4")
    new_torch = msgspec.structs.replace(RUNTIME, cuda="13.0")
    found = [
        abilities(no_gpu, one_core, RUNTIME),
        abilities(GpuMachine(gpus=(), driver="570.1"), HOST, None),
        abilities(GpuMachine(gpus=(), problem="GPU 0: GPU is lost"), HOST, RUNTIME),
        abilities(T4, HOST, RUNTIME),
        abilities(T4, HOST, CPU_TORCH),
        abilities(T4, HOST, NO_NCCL),
        abilities(T4, HOST, None),
        abilities(old_driver, HOST, new_torch),
        abilities(two, HOST, RUNTIME),
        abilities(make_gpu_machine(*["NVIDIA H200"] * 8, nvlinks=18), HOST, RUNTIME),
    ]

    text = "\n\n".join(map("\n".join, found))
    file_regression.check(text, extension=".txt", encoding="utf-8")
