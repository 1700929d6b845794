"""Fixtures of tests: the measured or counted case, and the assertion of its verdict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import pytest

from ddp_perf.core.case import Case
from ddp_perf.core.launch import LaunchResult
from ddp_perf.errors import did_you_mean
from ddp_perf.plugin.items import asserted_metric
from ddp_perf.plugin.session import SESSION, DdpSession
from ddp_perf.session.result import SuiteResult

if TYPE_CHECKING:
    from ddp_perf.plugin.measured import CountedStep, MeasuredCase

# What judges and reports is imported by the first test that asks for it: numpy and scipy take a
# third of a second, which the collection of cases must not.

# The step times of the ranks as a clock that pytest-benchmark can read.


class WorkerClock:
    """A clock that only ``next_step`` advances, by the time of the next measured step.

    ``benchmark.pedantic(clock.next_step, rounds=clock.steps)`` therefore records exactly the
    measured steps of all launches, each of its slowest rank, in the order of the launches.
    """

    def __init__(self, launches: Sequence[LaunchResult]) -> None:
        self._steps = [seconds for launch in launches for seconds in launch.step_s]
        self._next = 0
        self._now = 0.0

    @property
    def steps(self) -> int:
        return len(self._steps)

    def __call__(self) -> float:
        return self._now

    def next_step(self) -> None:
        self._now += self._steps[self._next]
        self._next += 1


# Fixtures of tests: the measured or counted case, and the assertion of its verdict.


@pytest.fixture
def ddp_session(request: pytest.FixtureRequest) -> DdpSession:
    """The plan, the machine and the results of this pytest session."""
    return request.config.stash[SESSION]


@pytest.fixture
def ddp_measured(
    request: pytest.FixtureRequest, ddp_session: DdpSession, ddp_case: Case
) -> MeasuredCase:
    """The case of this item. The first request measures all planned cases of its suite.

    ``ddp_case`` makes one item of each case of the suites. See ``measured_case`` for what
    skips and what fails, and ``duelled_case`` for that with --ddp-against.
    """
    suite = ddp_case.suite
    return _measured(request.node, ddp_session, ddp_case, lambda: ddp_session.result(suite))


@pytest.fixture
def ddp_measure(
    request: pytest.FixtureRequest, ddp_session: DdpSession
) -> Callable[[str], MeasuredCase]:
    """``ddp_measure(case_id)`` measures one case of the suites now, for a test of your own.

    Its one-rank case is measured in turn with it, launch by launch, so that the scaling is
    available. Nothing is measured twice in a session. Options, lease, baselines and reports are
    the same as for every other case::

        @pytest.mark.perf
        def test_two_ranks_pay(ddp_measure):
            measured = ddp_measure("my_project.benchmark.build-ddp-fp32-ws2-b64")
            assert measured.figures.scaling.speedup > 1.5
            measured.assert_verdict("step_time")
    """

    def measure(case_id: str) -> MeasuredCase:
        case = ddp_session.names.get(case_id)
        if case is None:
            hint = did_you_mean(case_id, ddp_session.names)
            pytest.fail(f"ddp_measure: no suite has a case {case_id!r}{hint}", pytrace=False)
        return _measured(request.node, ddp_session, case, lambda: ddp_session.measure(case))

    return measure


def _measured(
    node: pytest.Item, ddp: DdpSession, case: Case, measure: Callable[[], SuiteResult]
) -> MeasuredCase:
    from ddp_perf.plugin.against.duelled import duelled_case
    from ddp_perf.plugin.measured import measured_case

    if ddp.against is not None:
        return duelled_case(node, ddp, case)
    return measured_case(node, ddp, case, measure)


@pytest.fixture
def ddp_counted(
    request: pytest.FixtureRequest, ddp_session: DdpSession, ddp_case: Case
) -> CountedStep:
    """The case of this item, whose step is counted when the test asks for its counts.

    ``ddp_case`` makes one item of each case of the suites that trains. Nothing is measured, so the
    tests may run beside others (pytest-xdist). ``work`` has all counts, for a test of your own::

        @pytest.mark.work
        def test_no_host_read(ddp_counted):
            names = {operation.name for operation in ddp_counted.work.operations}
            assert "aten._local_scalar_dense" not in names
    """
    from ddp_perf.plugin.measured import CountedStep

    return CountedStep(ddp_case, ddp=ddp_session, node=request.node)


@pytest.fixture
def assert_verdict(
    request: pytest.FixtureRequest, ddp_measured: MeasuredCase
) -> Callable[[], None]:
    """``assert_verdict()`` asserts the verdict on the metric of the test's ``ddp_metric`` marker.

    A test without the marker asserts the structure. The figures of the metric become properties
    of the test in the JUnit file.
    """
    metric = asserted_metric(request.node)

    def assert_metric() -> None:
        ddp_measured.record(**ddp_measured.figures_of(metric))
        ddp_measured.assert_verdict(metric)

    return assert_metric


@pytest.fixture
def worker_clock(request: pytest.FixtureRequest, ddp_measured: MeasuredCase) -> WorkerClock:
    """A clock that shows the step times measured inside the ranks, for pytest-benchmark.

    Request it before ``benchmark``, which then reads this clock::

        @pytest.mark.perf
        def test_steps(worker_clock, benchmark):
            benchmark.pedantic(worker_clock.next_step, rounds=worker_clock.steps)
    """
    clock = WorkerClock(ddp_measured.measurement.launches)
    request.node.add_marker(pytest.mark.benchmark(timer=clock, group=ddp_measured.case.suite))
    return clock
