"""Sessions of hosts that change with every job: compared in a pool, and not without one."""

from __future__ import annotations

import pytest

from ddp_perf.core.verdict import Outcome

ONE = "mlp-none-fp32-ws1-b16"


@pytest.fixture
def measured_on(project, monkeypatch):
    """``measured_on(host, *arguments)`` appends a session of the host and returns its result."""

    def measured(host, *arguments):
        monkeypatch.setattr("ddp_perf.system.host.host.host_name", lambda: host)
        return project.results("--save-baseline=append", *arguments)["tiny"]

    return measured


def files(project):
    return sorted(path.name for path in (project.path / "baselines").glob("*.json"))


def hosts(project):
    from ddp_perf.baselines.store import BaselineStore

    (key,) = BaselineStore(project.path / "baselines").accelerators()
    sessions = BaselineStore(project.path / "baselines").load(key).cases[ONE].sessions
    return [(session.environment.host, session.environment.pool) for session in sessions]


@pytest.mark.parametrize("how", ["--ddp-machine=ci", "--override-ini=ddp_machine=ci"])
def test_hosts_of_a_pool_share_a_baseline_and_are_compared(project, measured_on, how):
    project.answer = project.steps_of(0.010, 0.012)
    first = measured_on("runner-1", how)
    second = measured_on("runner-2", how)

    (name,) = files(project)
    assert name.startswith("cpu-")
    assert name.endswith("@ci.json")
    assert hosts(project) == [("runner-1", "ci"), ("runner-2", "ci")]
    assert first.finding(ONE, "step_time").verdict.outcome is Outcome.NO_BASELINE
    finding = second.finding(ONE, "step_time")
    assert finding.verdict.ratio == pytest.approx(1.0, abs=0.01)
    assert finding.sessions == 1
    assert "host runner-1 → runner-2" in finding.changed


def test_without_a_pool_each_host_has_a_baseline_of_its_own(project, measured_on):
    project.answer = project.steps_of(0.010, 0.012)

    found = [measured_on(host).finding(ONE, "step_time") for host in ("runner-1", "runner-2")]

    assert len(files(project)) == 2
    assert {one.verdict.outcome for one in found} == {Outcome.NO_BASELINE}


def test_another_processor_of_the_pool_is_not_compared_and_the_reason_names_both(
    project, measured_on, monkeypatch
):
    project.answer = project.steps_of(0.010, 0.012)
    monkeypatch.setattr("ddp_perf.system.host.host.cpu_name", lambda: "AMD EPYC 7763")
    measured_on("runner-1", "--ddp-machine=ci")
    monkeypatch.setattr("ddp_perf.system.host.host.cpu_name", lambda: "Intel Xeon 8370C")

    verdict = measured_on("runner-2", "--ddp-machine=ci").finding(ONE, "step_time").verdict

    assert verdict.outcome is Outcome.INCOMPARABLE
    before, now = files(project)
    assert before.removesuffix(".json") in verdict.reason
    assert now.removesuffix(".json") in verdict.reason


def test_a_bad_name_is_refused_before_anything_is_launched(project):
    result = project.run("--ddp-machine=two cores")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "'two cores' is not a name of up to 64 letters" in result.stderr.str()
    assert not project.launchers
