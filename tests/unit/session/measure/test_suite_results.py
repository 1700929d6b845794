"""The parts of a suite's result beside its verdicts, and when it is handed over."""

from __future__ import annotations

import msgspec
import pytest

from ddp_perf.baselines.store import BaselineStore
from ddp_perf.baselines.work import WorkBaseline
from ddp_perf.core.verdict import Outcome
from ddp_perf.errors import LaunchError
from ddp_perf.launch.launcher import Runtime
from tests.builders import (
    RUNTIME,
    FakeLauncher,
    make_acknowledgement,
    make_baseline,
    make_capacity,
    make_case_baseline,
    make_cases,
    make_environment,
    make_failure,
    make_gpu_machine,
    make_launch,
    make_probe,
    make_session,
    make_stored_structure,
    make_structure,
)
from tests.suites import make_bench, measure_suite

ONE, TWO = make_cases(launches=3, price_per_gpu_hour=3.6)
JITTER = (1.0, 1.004, 0.996)


class Suite:
    """Sessions of two cases in one directory; each step takes ``step_s``."""

    def __init__(self, directory):
        self.directory = directory
        self.store = BaselineStore(directory / "baselines")
        self.capacity = make_capacity()
        self.runtime = RUNTIME
        self.requests, self.partial = [], []

    def run(self, answer=None, **changes):
        launcher = FakeLauncher(
            lambda asked: self.requests.append(asked) or (answer or at())(asked)
        )
        launcher.runtime = lambda case=None: self.runtime
        bench = make_bench(self.directory, launcher, import_paths=changes.pop("import_paths", ()))
        return measure_suite(
            bench,
            capacity=self.capacity,
            on_partial=self.partial.append,
            **{"cases": (ONE, TWO), "explain_budget_s": 60, **changes},
        )

    def stored_six_times(self, **baseline):
        """As if six sessions like the usual one had been stored, with their terms."""
        self.run(save_mode="missing")
        self.store.update(
            self.capacity.accelerator_key("cpu"),
            lambda now: msgspec.structs.replace(
                now,
                cases={
                    case_id: msgspec.structs.replace(case, sessions=case.sessions * 6)
                    for case_id, case in now.cases.items()
                },
                **baseline,
            ),
        )
        self.requests.clear()
        self.partial.clear()


def at(step_s=0.01):
    def answer(request):
        return make_launch(
            request.case,
            request.round,
            step_s=step_s * JITTER[request.round % 3],
            probe=make_probe(data=0.0001 + step_s - 0.01),
        )

    return answer


@pytest.fixture
def suite(tmp_path):
    return Suite(tmp_path)


def test_a_result_contains_costs_and_the_commands_of_its_cases(suite):
    commands = {ONE.id: "pytest -k one", TWO.id: "pytest -k two"}

    result = suite.run(commands=commands)

    assert result.commands == commands
    assert result.costs.keys() == {ONE.id, TWO.id}
    assert suite.partial[0].costs.keys() == {ONE.id, TWO.id}


def test_the_gpus_are_described_only_on_the_gpu_tier(suite):
    suite.capacity = make_capacity(make_gpu_machine("NVIDIA H200"), cores=2)
    gpu = make_cases(launches=1, tier="gpu", world_sizes=[1])

    assert suite.run().machine is None
    assert suite.run(cases=tuple(gpu)).machine == suite.capacity.machine


def test_a_torch_without_cuda_is_refused_for_gpus_before_anything_is_launched(suite):
    suite.capacity = make_capacity(make_gpu_machine("NVIDIA H200"), cores=2)
    suite.runtime = msgspec.structs.replace(RUNTIME, cuda=None, nccl=None)
    assert isinstance(suite.runtime, Runtime)

    with pytest.raises(LaunchError, match="built without CUDA"):
        suite.run(cases=tuple(make_cases(launches=1, tier="gpu", world_sizes=[1])))
    assert suite.requests == []
    assert suite.run().measurements.keys() == {ONE.id, TWO.id}  # the CPU needs neither


def test_the_structure_of_any_machine_judges_a_first_session(suite):
    known = {
        ONE.id: make_stored_structure(ONE),
        TWO.id: make_stored_structure(TWO, make_structure(parameters=1)),
    }
    suite.store.work.update("quick", None, lambda _: WorkBaseline(suite="quick", cases=known))

    result = suite.run()

    assert result.finding(ONE.id, "structure").verdict.outcome is Outcome.PASS
    assert result.finding(TWO.id, "structure").verdict.outcome is Outcome.REGRESSION


def test_the_stored_result_is_handed_over_before_it_is_explained(suite):
    suite.stored_six_times()

    suite.run(at(0.02), save_mode="accept", reason="meant")

    stored_at = [bool(partial.saved) for partial in suite.partial]
    explained_at = [len(partial.explanations) for partial in suite.partial]
    assert stored_at.index(True) < explained_at.index(1) < explained_at.index(2)


def test_every_case_that_got_slower_is_explained_and_handed_over(suite):
    suite.stored_six_times()

    result = suite.run(at(0.02))

    assert result.explanations.keys() == {ONE.id, TWO.id}
    assert suite.partial[-1].explanations == result.explanations


def test_an_acknowledged_regression_is_not_explained(suite):
    suite.stored_six_times(acknowledged=(make_acknowledgement(ONE, until="9999-12-31"),))

    result = suite.run(at(0.02))

    assert result.explanations.keys() == {TWO.id}
    assert len([request for request in suite.requests if request.case.id == ONE.id]) == 3


def test_a_regression_with_an_expired_acknowledgement_is_explained(suite):
    suite.stored_six_times(acknowledged=(make_acknowledgement(ONE, until="2026-01-01"),))

    assert suite.run(at(0.02)).explanations.keys() == {ONE.id, TWO.id}


def test_a_case_is_explained_once_in_a_session(suite):
    suite.stored_six_times()
    first = suite.run(at(0.02), cases=(ONE,))
    suite.requests.clear()

    both = suite.run(at(0.02), cases=(TWO,), earlier=first)

    assert both.explanations.keys() == {ONE.id, TWO.id}
    assert {request.case.id for request in suite.requests} == {TWO.id}


def test_each_case_without_a_failure_is_profiled_in_one_more_launch(suite):
    def answer(request):
        if request.case.id == TWO.id:
            return make_failure(request.case, request.round)
        return at()(request)

    result = suite.run(answer, profile_steps=4, import_paths=("here",))

    profiled = [request for request in suite.requests if request.profiling is not None]
    assert [(request.case.id, request.profiling.steps) for request in profiled] == [(ONE.id, 4)]
    assert profiled[0].import_paths == ("here",)
    assert profiled[0].profiling.directory.startswith(str(suite.directory))
    assert result.profiles.keys() == {ONE.id}
    assert suite.run().profiles == {}


def test_flight_records_of_every_launch_go_under_the_root(suite):
    suite.run()

    assert all(request.records.startswith(str(suite.directory)) for request in suite.requests)


def test_the_nearest_relative_with_a_baseline_of_a_case_is_named(suite):
    """The machine itself has a baseline of neither case."""
    suite.capacity = make_capacity(make_gpu_machine("NVIDIA H200 NVL"), cores=2)
    (case,) = make_cases(launches=1, tier="gpu", world_sizes=[1])
    key = suite.capacity.accelerator_key("gpu")
    for relative in (f"{key}-80gb", "h200", "a100"):
        stored = make_case_baseline(case, make_session([0.01]))
        suite.store.update(
            relative,
            lambda _, name=relative, s=stored: make_baseline({case.id: s}, accelerator=name),
        )

    result = suite.run(cases=(case,))

    reason = result.finding(case.id, "step_time").reason
    assert f"the baseline is of {key}-80gb, this is {key}" in reason
    assert make_environment().accelerator_key not in reason
