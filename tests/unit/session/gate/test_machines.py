"""Sessions of the same cases on recorded machines that change between the sessions."""

from __future__ import annotations

import msgspec
import pytest

from ddp_perf.core.verdict import Outcome
from ddp_perf.errors import LaunchError
from ddp_perf.system.gpu.gpus import find_gpus
from tests.builders import (
    RUNTIME,
    FakeLauncher,
    make_capacity,
    make_cases,
    make_gpu_machine,
    make_launch,
)
from tests.recordings import RecordedReader
from tests.suites import make_bench, measure_suite

CASES = tuple(make_cases(tier="gpu", launches=3))
ONE, TWO = CASES


def read(name, mask=None, **changes):
    """Return the recorded machine as ``mask`` shows it, each GPU with ``changes``."""
    machine = find_gpus(
        {} if mask is None else {"CUDA_VISIBLE_DEVICES": mask}, RecordedReader.of(name)
    )
    gpus = tuple(msgspec.structs.replace(gpu, **changes) for gpu in machine.gpus)
    return msgspec.structs.replace(machine, gpus=gpus)


@pytest.fixture
def session(tmp_path):
    """``session(machine, …)`` runs one session on the machine and returns its result."""

    def run(machine, *, runtime=RUNTIME, save_mode=None):
        launcher = FakeLauncher(
            lambda request: make_launch(
                request.case, request.round, step_s=(1, 1.004, 0.996)[request.round] / 100
            )
        )
        launcher.runtime = lambda case: runtime  # type: ignore[assignment]
        result = measure_suite(
            make_bench(tmp_path, launcher),
            capacity=make_capacity(machine),
            cases=CASES,
            save_mode=save_mode,
            reason="new limits",
        )
        assert launcher.asked
        return result

    return run


def step_times(result):
    """Return the outcomes and reasons of the cases' step times."""
    verdicts = [result.finding(case.id, "step_time").verdict for case in CASES]
    return [verdict.outcome for verdict in verdicts], verdicts[-1].reason


NOT_COMPARED = {Outcome.NO_BASELINE, Outcome.INCOMPARABLE}


def test_the_same_machine_is_comparable_and_its_readings_are_recorded(session):
    machine = read("a100-pcie-bridges", "0,1")
    session(machine, save_mode="missing")

    result = session(machine)

    outcomes, _ = step_times(result)
    assert NOT_COMPARED.isdisjoint(outcomes)
    assert result.machine == machine
    assert result.baseline_path.endswith("/a100-pcie-40gb-nvlink.json")
    assert result.environment.links == "NV12"


def test_a_lowered_power_limit_is_another_machine(session):
    session(read("h200"), save_mode="missing")

    outcomes, reason = step_times(session(read("h200", power_limit_w=500.0)))

    assert outcomes == [Outcome.INCOMPARABLE] * 2
    assert "power limit 700 W, here 500 W" in reason
    assert "-o ddp_baselines=DIR" in reason


def test_a_session_of_another_machine_is_not_appended_but_accepted(session):
    session(read("h200"), save_mode="missing")
    low = read("h200", power_limit_w=500.0)

    appended = session(low, save_mode="append")
    accepted = session(low, save_mode="accept")

    assert set(appended.not_saved) == {ONE.id, TWO.id}
    assert "power limit 700 W, here 500 W" in appended.not_saved[ONE.id].reason
    assert set(accepted.saved) == {ONE.id, TWO.id}
    assert NOT_COMPARED.isdisjoint(step_times(session(low))[0])


def test_other_gpus_of_one_machine_are_another_link_only_for_two_ranks(session):
    session(read("a100-pcie-bridges", "2,3"), save_mode="missing")

    outcomes, reason = step_times(session(read("a100-pcie-bridges", "0,2")))

    assert outcomes[0] not in NOT_COMPARED
    assert outcomes[1] is Outcome.INCOMPARABLE
    assert "interconnect NODE, here SYS" in reason


def test_a_machine_without_its_nvlink_is_another_machine(session):
    whole = read("a100-sxm4-nvswitch")
    hidden = tuple(msgspec.structs.replace(x, nvlinks=0, pcie="SYS") for x in whole.links)
    session(whole, save_mode="missing")

    outcomes, reason = step_times(session(msgspec.structs.replace(whole, links=hidden)))

    assert outcomes[1] is Outcome.INCOMPARABLE
    assert "interconnect NV12, here SYS" in reason


def test_a_mig_slice_is_another_accelerator_and_the_nearest_one_is_named(session):
    session(read("a100-sxm4-nvswitch"), save_mode="missing")
    session(read("a100-pcie-bridges"), save_mode="missing")

    outcomes, reason = step_times(session(read("a100-mig")))

    assert outcomes == [Outcome.INCOMPARABLE] * 2
    assert "the baseline is of a100-sxm4-40gb, this is a100-sxm4-40gb-mig-3g-20gb" in reason


def test_an_upgrade_is_judged_and_reported(session):
    session(read("t4-pair"), save_mode="missing")
    upgraded = msgspec.structs.replace(RUNTIME, torch="2.14.0", nccl="2.28.1")

    result = session(read("t4-pair"), runtime=upgraded)

    assert NOT_COMPARED.isdisjoint(step_times(result)[0])
    assert result.finding(TWO.id, "step_time").changed == (
        "nccl 2.27.3 → 2.28.1",
        "torch 2.13.0 → 2.14.0",
    )


@pytest.mark.parametrize(
    ("runtime", "lacking"),
    [({"cuda": None, "nccl": None}, "CUDA"), ({"nccl": None}, "NCCL")],
)
def test_a_torch_without_cuda_or_nccl_is_refused_before_any_launch(session, runtime, lacking):
    with pytest.raises(LaunchError, match=f"built without {lacking}.*install a CUDA build"):
        session(read("t4-pair"), runtime=msgspec.structs.replace(RUNTIME, **runtime))


def test_a_torch_for_a_newer_cuda_than_the_drivers_is_refused_before_any_rank_is_started(session):
    machine = msgspec.structs.replace(read("t4-pair"), cuda_driver="12.8")

    with pytest.raises(LaunchError, match=r"built for CUDA 13.0, .* driver for CUDA 12.8: install"):
        session(machine, runtime=msgspec.structs.replace(RUNTIME, cuda="13.0"))


def test_a_torch_without_code_for_the_gpu_is_refused_before_any_rank_is_started(session):
    machine = make_gpu_machine("Tesla V100-PCIE-16GB", compute_capability=(7, 0))

    with pytest.raises(LaunchError, match=r"no code for compute capability 7.0 .*: install"):
        session(machine, runtime=msgspec.structs.replace(RUNTIME, cuda="13.0"))
