"""Sessions of a pool: judged by their host or by the other hosts, whose control must be alike."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from ddp_perf.core.case import Tolerances
from ddp_perf.core.verdict import Outcome
from ddp_perf.session.gate.comparability import MachineHistory, compared_with_hosts
from ddp_perf.session.gate.judge_again import judge_again
from ddp_perf.session.gate.persistence import with_persistence
from ddp_perf.session.store_baseline import append
from tests.builders import (
    make_baseline,
    make_case,
    make_environment,
    make_finding,
    make_measurement,
    make_result,
)

CASE = make_case(tolerances=Tolerances(step_time=0.05, tail=0.05, peak_memory=0.05))
OTHER = msgspec.structs.replace(CASE, id="another")
JITTER = np.array([1.0, 1.002, 0.998, 1.001, 0.999])
DAYS = (1.0, 1.004, 0.996, 1.002, 0.998, 1.003, 0.997, 1.001, 0.999, 1.002)


class Pool:
    """One case, measured each day on a host that the test names."""

    def __init__(self, *, pool="ci", cases=(CASE,)):
        self.pool, self.cases = pool, cases
        self.baseline, self.day = make_baseline(), 0

    def measured(self, host, step_s, control_s=0.002):
        self.day += 1
        steps = list(step_s * JITTER * DAYS[self.day % len(DAYS)])
        return make_result(
            [make_measurement(case, steps, control_s=(control_s,) * 8) for case in self.cases],
            date=f"2026-03-{self.day:02}T03:00:00+00:00",
            environment=make_environment(host=host, pool=self.pool),
        )

    def __call__(self, host, step_s=0.01, control_s=0.002):
        """Measure, judge and store a session, and return its result."""
        result = self.measured(host, step_s, control_s)
        result = judge_again(result, self.baseline, baseline_path="baselines/x.json")
        self.baseline, result = append(result, self.baseline)
        return result

    def days(self, hosts, **figures):
        return [self(host, **figures) for host in hosts]


def verdict(result, metric="step_time"):
    return result.finding(CASE.id, metric).verdict


@pytest.mark.parametrize(
    ("pool", "outcome"), [(None, Outcome.REGRESSION), ("ci", Outcome.UNDECIDED)]
)
def test_sessions_of_one_host_do_not_show_how_another_may_differ(pool, outcome):
    gate = Pool(pool=pool)
    gate.days("aaaaaaaa")

    found = gate("b", 0.0108).finding(CASE.id, "step_time")

    assert found.verdict.outcome is outcome
    if pool is not None:
        assert found.verdict.assumed_sd == 0.06
        assert found.reason.endswith("; the sessions are the first ones of 1 host of the pool")


def test_a_host_that_came_before_is_compared_with_itself():
    gate = Pool()
    for host, step_s in zip("abcabcabc", (0.010, 0.011, 0.012) * 3, strict=True):
        gate(host, step_s)

    same, slower = verdict(gate("c", 0.012)), verdict(gate("a", 0.0113))

    assert same.outcome is Outcome.PASS
    assert same.ratio == pytest.approx(1.0, abs=0.01)
    assert slower.outcome is Outcome.REGRESSION
    assert slower.ratio == pytest.approx(1.13, abs=0.01)


def test_a_new_host_is_compared_with_the_first_session_of_each():
    gate = Pool()
    for number, step_s in enumerate((0.0100, 0.0101, 0.0099, 0.0102, 0.0098, 0.0100, 0.0101)):
        gate(f"runner-{number}", step_s)

    assert verdict(gate("runner-7", 0.0100)).outcome is Outcome.PASS
    assert verdict(gate("runner-8", 0.0125)).outcome is Outcome.REGRESSION


def test_a_regression_that_was_found_on_one_host_stays_red_on_another():
    gate = Pool()
    gate.days("abab" * 2)
    assert verdict(gate("a", 0.0125)).outcome is Outcome.REGRESSION

    new, known, mended = (gate(*one) for one in (("c", 0.0125), ("b", 0.0125), ("b",)))

    assert (verdict(new).outcome, verdict(known).outcome) == (Outcome.REGRESSION,) * 2
    assert "slower since 2026-03-09" in new.finding(CASE.id, "step_time").reason
    assert verdict(mended).outcome is Outcome.PASS


@pytest.mark.parametrize(
    ("hosts", "outcome"),
    [
        pytest.param("bbb", Outcome.SUSPECT, id="one new host"),
        pytest.param("bcd", Outcome.REGRESSION, id="three new hosts"),
        pytest.param("aaa", Outcome.REGRESSION, id="a host with a level"),
    ],
)
def test_suspect_sessions_of_one_new_host_confirm_nothing(hosts, outcome):
    gate = Pool()
    gate.days("aaaa")
    stored = gate.baseline.cases[CASE.id]
    suspects = [
        msgspec.structs.replace(
            stored.sessions[-1],
            date=f"2026-04-{day:02}T03:00:00+00:00",
            environment=make_environment(host=host, pool="ci"),
            verdicts={"step_time": Outcome.SUSPECT},
        )
        for day, host in enumerate(hosts[:-1], start=1)
    ]
    stored = msgspec.structs.replace(stored, sessions=(*stored.sessions, *suspects))
    finding = make_finding(CASE, Outcome.SUSPECT, ratio=1.08)
    suspect = msgspec.structs.replace(finding.verdict, chance=0.005)
    finding = msgspec.structs.replace(finding, verdict=suspect)

    date = "2026-04-03T03:00:00+00:00"
    found = with_persistence(finding, stored, date=date, alpha=0.001, host=hosts[-1])

    assert found.verdict.outcome is outcome


def test_hosts_that_are_suspect_in_a_row_are_a_regression():
    gate = Pool()
    gate.days("aaaa")

    found = [verdict(gate(host, 0.0145)).outcome for host in "bcbd"]

    assert found == [Outcome.SUSPECT] * 3 + [Outcome.REGRESSION]


def test_the_prior_of_a_case_is_in_the_units_in_which_the_case_is_judged():
    gate = Pool(cases=(CASE, OTHER))
    for host, step_s in zip("abcdabcd", (0.010, 0.012, 0.009, 0.011) * 2, strict=True):
        gate(host, step_s)
    known = gate.baseline.cases
    few = msgspec.structs.replace(known[CASE.id], sessions=known[CASE.id].sessions[:4])
    baseline = msgspec.structs.replace(gate.baseline, cases={**known, CASE.id: few})

    history = MachineHistory(baseline, make_environment(host="a", pool="ci"))

    assert history.of(CASE.id, "step_time").of_hosts
    assert not history.of(OTHER.id, "step_time").of_hosts
    assert history.prior(CASE, "step_time").sd > 0.05  # as hosts differ, and not as sessions do
    assert history.prior(OTHER, "step_time").sd == 0.03  # assumed: the first case shows nothing


CONTROLS = (0.00200, 0.00203, 0.00198, 0.00201, 0.00199)


def pool_of_five():
    gate = Pool()
    for number, control_s in enumerate(CONTROLS):
        gate(f"runner-{number}", 0.010, control_s)
    return gate


def test_a_host_that_does_not_fit_needs_no_more_launches():
    outlier_host = pool_of_five()("runner-7", 0.0125, 0.0025).outlier_host
    finding = make_finding(CASE, Outcome.UNDECIDED, more_launches=7, likely_launches=9)

    verdict = compared_with_hosts(finding, outlier_host).verdict

    assert verdict.outcome is Outcome.INVALID
    assert (verdict.more_launches, verdict.likely_launches) == (None, None)


def test_a_host_with_a_slow_control_does_not_fit_and_its_times_are_neither_judged_nor_stored():
    gate = pool_of_five()

    result = gate("runner-7", 0.0125, 0.0025)

    assert str(result.outlier_host) == (
        "host runner-7 does not fit pool ci: its control is 25 % slower than that of its 5 other"
        " hosts, where up to 5 % is usual; take it out, or give it a pool of its own"
    )
    found = result.finding(CASE.id, "step_time")
    assert found.verdict.outcome is Outcome.INVALID
    assert found.reason.startswith(f"{result.outlier_host}; ")
    assert verdict(result, "tail").outcome is Outcome.INVALID
    assert verdict(result, "peak_memory").outcome is Outcome.PASS
    assert "does not fit pool ci" in result.saved[CASE.id].without["step_time"]
    (stored,) = (
        s for s in gate.baseline.cases[CASE.id].sessions if s.environment.host == "runner-7"
    )
    assert set(stored.launches[0]) == {"peak_memory"}  # its control is no host's of the pool


def test_slower_code_does_not_look_like_a_host_that_does_not_fit():
    result = pool_of_five()("runner-7", 0.0125, 0.002)

    assert result.outlier_host is None
    assert verdict(result).outcome is Outcome.REGRESSION


def test_a_fast_control_does_not_fit_either():
    outlier_host = pool_of_five()("runner-7", 0.008, 0.0016).outlier_host

    assert "its control is 25 % faster" in str(outlier_host)


@pytest.mark.parametrize(
    ("hosts", "control_s"),
    [
        pytest.param(2, 0.0025, id="two hosts do not show how hosts differ"),
        pytest.param(5, 0.00208, id="a difference below the tolerance"),
    ],
)
def test_a_host_fits_as_long_as_nothing_shows_the_contrary(hosts, control_s):
    gate = Pool()
    for number in range(hosts):
        gate(f"runner-{number}", 0.010, CONTROLS[number])

    assert gate("runner-7", 0.010, control_s).outlier_host is None


def test_a_host_is_none_of_those_that_it_is_compared_with():
    gate = Pool()
    gate.days("abc")

    assert gate("c", 0.010, 0.0025).outlier_host is None
    assert gate("d", 0.010, 0.0025).outlier_host is not None


def test_a_host_with_a_level_of_its_own_is_judged_by_it_though_it_does_not_fit():
    gate = Pool()
    gate.days("aabbcc")
    for _ in range(2):  # while it fitted
        gate("d")

    result = gate("d", 0.010, 0.0025)

    assert result.outlier_host is not None
    assert verdict(result, "tail").outcome is Outcome.PASS


def test_the_control_of_other_software_is_not_compared():
    gate = pool_of_five()
    measured = gate.measured("runner-7", 0.010, 0.0025)
    upgraded = make_environment(host="runner-7", pool="ci", torch="2.14.0")
    measured = msgspec.structs.replace(measured, environment=upgraded)

    result = judge_again(measured, gate.baseline, baseline_path="baselines/x.json")

    assert result.outlier_host is None
