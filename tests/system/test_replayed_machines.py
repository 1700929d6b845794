"""The real items on replayed machines: a change of a machine is red, reported or ignored."""

from __future__ import annotations

import msgspec
import pytest

from ddp_perf.system.gpu.gpus import find_gpus
from tests.builders import FakeLauncher, make_capacity, make_launch
from tests.projects import REPOSITORY, make_bare_project
from tests.recordings import RecordedReader


@pytest.fixture
def session(pytester, monkeypatch):
    """``session(machine, *arguments)`` runs a test of two cases there, gated by ``gates`` too.
    ``rank``: changes of every rank's result.
    """
    make_bare_project(pytester, monkeypatch)
    shipped = (REPOSITORY / "bench_configs" / "mlp_scaling.yaml").read_text()
    config = pytester.path / "suite.yaml"

    def run(machine, *arguments, test="test_step_time", gates="", **rank):
        config.write_text(shipped.replace("tolerances: {", f"tolerances: {{{gates}"))

        def answer(request):
            step_s = (1, 1.004, 0.996, 1.002, 0.998)[request.round] / 10
            return make_launch(request.case, request.round, step_s=step_s, **rank)

        capacity = make_capacity(machine)
        monkeypatch.setattr("ddp_perf.plugin.session.find_capacity", lambda: capacity)
        monkeypatch.setattr(
            "ddp_perf.session.measure.machine.ServerLauncher", lambda: FakeLauncher(answer)
        )
        return pytester.runpytest_inprocess(
            *("-m", "gpu", "-k", test, f"--ddp-config={config}", "-rA"),
            *("--ddp-world-sizes", "1,2", "--ddp-batch-sizes", "256", "--ddp-budget", "0"),
            *arguments,
        )

    return run


def recorded(name, **changes):
    machine = find_gpus({}, RecordedReader.of(name))
    gpus = tuple(msgspec.structs.replace(gpu, **changes) for gpu in machine.gpus)
    return msgspec.structs.replace(machine, gpus=gpus)


def test_a_power_limit_that_was_lowered_is_red_with_the_remedy(session, pytester):
    session(recorded("h200"), "--save-baseline").assert_outcomes(skipped=2, deselected=9)
    assert (pytester.path / "baselines" / "h200.json").exists()

    done = session(recorded("h200", power_limit_w=500.0))

    done.assert_outcomes(failed=2, deselected=9)
    done.stdout.fnmatch_lines(["*INCOMPARABLE: step time of mlp-ddp-fp32-ws2-b256*"])
    assert "power limit 700 W, here 500 W" in done.stdout.str()


def test_the_mfu_is_a_figure_of_junit_and_of_the_summary(session, pytester):
    flops = 670_000_000_000
    done = session(
        *(recorded("h200"), "-vv", "--junitxml", "junit.xml"),
        flops=flops,
        flops_by_format={"fp32": flops},
    )

    done.stdout.fnmatch_lines(["MFU              : 10.0% of 67 TFLOP/s (fp32, dense)"])
    assert '<property name="mfu" value="0.1' in (pytester.path / "junit.xml").read_text()


def test_an_mfu_over_100_percent_is_invalid_and_not_stored(session, pytester):
    done = session(recorded("h200"), "--save-baseline", flops=2 * 10**14)

    done.assert_outcomes(skipped=2, deselected=9)
    assert "a measurement error: 2000 TFLOP/s are more than" in done.stdout.str()
    assert not (pytester.path / "baselines" / "h200.json").exists()


def test_a_lost_gpu_is_red_with_its_reason_if_devices_are_expected(session, monkeypatch):
    monkeypatch.setattr(
        "ddp_perf.plugin.measured.find_xids", lambda: ["Xid 79 of 0000:86:00: fell off the bus"]
    )
    machine = recorded("t4-pair")
    lost = msgspec.structs.replace(
        machine, gpus=machine.gpus[:1], links=(), problem="GPU 1: GPU is lost"
    )

    done = session(lost, "--ddp-expect-devices", "2")

    done.assert_outcomes(errors=2, deselected=9)
    assert (
        "found 1 (GPU 1: GPU is lost; Xid 79 of 0000:86:00: fell off the bus)" in done.stdout.str()
    )


ENERGY = {"test": "test_energy", "gates": "energy: 0.05, "}


def test_energy_is_gated_if_the_suite_gates_it_and_shown_if_it_was_read(session, pytester):
    session(recorded("h200"), "--save-baseline", **ENERGY, energy_j=500.0)

    done = session(recorded("h200"), "-vv", "--junitxml", "junit.xml", **ENERGY, energy_j=800.0)

    done.assert_outcomes(failed=2, deselected=11)
    done.stdout.fnmatch_lines(["*REGRESSION: energy per sample of mlp-ddp-fp32-ws2-b256: 1.6*"])
    assert "Energy           : 0.0548 J per sample, all GPUs" in done.stdout.str()
    assert (
        '<property name="energy_j_per_sample" value="0.054'
        in (pytester.path / "junit.xml").read_text()
    )


def test_gated_energy_that_was_not_read_is_no_pass(session):
    session(recorded("h200"), "--save-baseline", **ENERGY, energy_j=500.0)

    done = session(recorded("h200"), **ENERGY)

    done.assert_outcomes(skipped=2, deselected=11)
    assert "INVALID: energy per sample" in done.stdout.str()


def test_a_metric_that_no_suite_gates_makes_no_item(session):
    session(recorded("h200"), test="test_energy").assert_outcomes(deselected=11)
