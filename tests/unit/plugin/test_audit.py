"""A session that ends with an audit: what is launched, kept and said, and what stays as it was."""

from __future__ import annotations

import contextlib
import functools

import msgspec
import pytest

from ddp_perf.baselines.store import BaselineStore
from ddp_perf.core.verdict import Outcome
from ddp_perf.duel.open_sides import OpenSide
from ddp_perf.history.store import HistoryStore
from ddp_perf.session import gate_audit
from ddp_perf.session.gate_audit import HiddenSlowDown
from ddp_perf.settle import settling
from ddp_perf.system.git import tree_of
from tests.builders import make_failure, make_launch
from tests.repositories import Repository
from tests.unit.duel.played_sides import PlayedSide, make_prepared
from tests.unit.plugin.conftest import JITTER

TWO = "mlp-ddp-fp32-ws2-b16"
AUDIT = ("--ddp-audit", "--ddp-history=sqlite:///history.sqlite")
LAUNCHES = 3  # of each case


@pytest.fixture
def audited(project, monkeypatch):
    """Return a project with stored sessions; ``audited(size)`` hides that size in its session."""
    project.store()
    ordinary = project.answer

    def answer(request):
        launch = ordinary(request)
        factor = 1 + sum(injection.amount for injection in request.injections)
        step_s = (0.010 if request.case.world_size == 1 else 0.012) * factor
        step_s *= JITTER[request.round % len(JITTER)]
        return make_launch(request.case, request.round, step_s=step_s) if factor > 1 else launch

    project.answer = answer

    def hide(size):
        (two,) = [case for case in project.cases() if case.id == TWO]
        hidden = HiddenSlowDown(case=two, size=size, seed=42)
        monkeypatch.setattr(gate_audit, "draw_slow_down", lambda results: hidden)
        return project

    return hide


def audits_of(project):
    url = f"sqlite:///{project.path}/history.sqlite"
    with contextlib.closing(HistoryStore(url, create=False)) as store:
        return store.audits()


def sessions_of(project):
    url = f"sqlite:///{project.path}/history.sqlite"
    with contextlib.closing(HistoryStore(url, create=False)) as store:
        return [len(store.series(case, "step_time").sessions) for case in store.cases()]


def said(ended):
    """Return the output of a session without its line breaks."""
    return " ".join(ended.stdout.str().split())


def audit_requests(project):
    """Return what was launched after the ordinary launches of both cases."""
    return project.requests()[2 * LAUNCHES :]


def test_a_hidden_slow_down_is_found_and_kept(audited):
    project = audited(0.08)

    ended = project.run(*AUDIT)

    assert ended.ret == pytest.ExitCode.OK
    (audit,) = audits_of(project)
    assert (audit.case_id, audit.size, audit.seed) == (TWO, 0.08, 42)
    assert (audit.outcome, audit.stage) == (Outcome.REGRESSION, "sessions")
    assert audit.ratio == pytest.approx(1.08, abs=0.005)
    assert [request.case.id for request in audit_requests(project)] == [TWO] * LAUNCHES
    assert {one.text for row in audit_requests(project) for one in row.injections} == {
        "compute:8.0%"
    }
    assert f"ddp: audit of the gate: {TWO} once more, slowed by a hidden size" in said(ended)
    assert f"audit of the gate: {TWO} was slowed by 8 % in secret: REGRESSION, +" in said(ended)
    assert "of the last 1 hidden slow-down of 5 to 10 %, 1 was found" in said(ended)


def test_a_hidden_nothing_is_not_called_slower(audited):
    project = audited(0.0)

    ended = project.run(*AUDIT)

    (audit,) = audits_of(project)
    assert audit.outcome is Outcome.PASS
    assert {row.injections for row in audit_requests(project)} == {()}
    assert "of the last 1 hidden nothing, 0 were called slower" in said(ended)


def test_the_results_the_baseline_and_the_history_have_no_session_of_the_audit(audited):
    project = audited(0.08)

    results = project.results(*AUDIT, "--save-baseline=append", "--ddp-report=report")

    launches = [len(one.launches) for one in results["tiny"].measurements.values()]
    assert launches == [LAUNCHES, LAUNCHES]
    assert all(found.verdict.outcome is Outcome.PASS for found in results["tiny"].findings)
    assert [len(case.sessions) for case in project.stored().values()] == [7, 7]
    assert sessions_of(project) == [1, 1]
    page = (project.path / "report" / "index.html").read_text()
    assert "1 hidden slow-down of 5 to 10 %, 1 was found" in page


def test_the_audit_is_judged_by_the_sessions_before_the_session(audited):
    project = audited(0.0)
    project.store(sessions=4)  # a fifth one would be part of the reference
    project.answer = project.steps_of(0.0102, 0.01224)  # the session itself is 2 % slower

    project.run(*AUDIT, "--save-baseline=append")

    (audit,) = audits_of(project)
    assert audit.ratio == pytest.approx(1.02, abs=0.0005)


def test_an_audit_does_not_replace_what_ranks_printed(audited):
    project = audited(0.08)

    project.run(*AUDIT)

    assert {row.output for row in audit_requests(project)} == {None}


@pytest.mark.parametrize("strict", [(), ("--ddp-strict",)])
@pytest.mark.parametrize(
    ("problem", "line"),
    [
        (KeyboardInterrupt(), "interrupted, so nothing of it is kept"),
        (
            OSError("No space left\non this device"),
            "failed, so nothing of it is kept: No space left",
        ),
        (None, "failed, so nothing of it is kept: mlp-ddp"),
    ],
    ids=["Ctrl-C", "an error", "a failing launch"],
)
def test_what_ends_an_audit_is_one_line_and_the_session_stays_as_it_is(
    audited, problem, line, strict
):
    project = audited(0.08)
    answer = project.answer

    def fail(request):
        if not request.injections:
            return answer(request)
        if problem is None:
            return make_failure(request.case, request.round)
        raise problem

    project.answer = fail

    ended = project.run(*AUDIT, *strict, "--save-baseline=append")

    assert ended.ret == pytest.ExitCode.OK
    assert f"audit of the gate: {line}" in said(ended)
    assert audits_of(project) == []
    assert sessions_of(project) == [1, 1]
    assert [len(case.sessions) for case in project.stored().values()] == [7, 7]
    assert project.launchers[-1].closed


def test_a_session_that_is_interrupted_has_no_audit(audited):
    project = audited(0.08)

    def interrupt(request):
        raise KeyboardInterrupt

    project.answer = interrupt

    ended = project.run(*AUDIT, no_reraise_ctrlc=True)

    assert ended.ret == pytest.ExitCode.INTERRUPTED
    assert len(project.requests()) == 1
    assert "audit of the gate: mlp" not in said(ended)


def test_a_session_without_baseline_says_that_there_is_none(project):
    ended = project.run(*AUDIT)

    assert len(project.requests()) == 2 * LAUNCHES
    assert "audit of the gate: none, because no case is compared with sessions" in said(ended)


def test_the_length_of_the_session_contains_its_audit(audited):
    ended = audited(0.0).run(*AUDIT, "--ddp-settle=2m")

    ended.stdout.fnmatch_lines(
        ["ddp: 6 launches of 1 suite, *; the audit of the gate: up to 2 min more"]
    )


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--ddp-audit",), "*--ddp-audit: needs --ddp-history=URL, which keeps what it finds"),
        ((*AUDIT, "--ddp-inject=compute:5%"), "*--ddp-audit: *; leave --ddp-inject out"),
        (("--ddp-audit", "--ddp-against=HEAD"), "*--ddp-audit with --ddp-against: *"),
    ],
)
def test_what_cannot_be_audited_is_refused(project, arguments, line):
    refused = project.run(*arguments)

    assert refused.ret == pytest.ExitCode.USAGE_ERROR
    refused.stderr.fnmatch_lines([line])


@pytest.fixture
def settled(audited, monkeypatch):
    """Return a project in git whose second stage is played; its sides are in the list."""
    project = audited(0.08)
    (project.path / ".gitignore").write_text("*.sqlite\nartifacts/\n__pycache__/\n")
    repository = Repository(project.path)
    repository.git("add", "--all")
    repository.git("commit", "--quiet", "--message", "all")
    commit = repository.git("rev-parse", "HEAD")
    _name_code(project, commit, tree_of(project.path, commit))
    opened = []

    @contextlib.contextmanager
    def played(reference, the_project, say):
        a, b = (
            OpenSide(
                make_prepared(name, project.path),
                PlayedSide(_Still(), seed, noise=0.004),
            )
            for seed, name in enumerate("AB")
        )
        opened.append((a, b))
        yield a, b

    monkeypatch.setattr(settling, "Settling", functools.partial(settling.Settling, sides=played))
    return project, opened


class _Still:
    """A clock that nobody reads."""

    now = 0.0


def _name_code(project, commit, tree):
    """Name the code of the stored sessions."""

    def named(baseline):
        cases = {}
        for case_id, case in baseline.cases.items():
            sessions = tuple(
                msgspec.structs.replace(
                    session,
                    environment=msgspec.structs.replace(
                        session.environment, commit=commit, tree=tree
                    ),
                )
                for session in case.sessions
            )
            cases[case_id] = msgspec.structs.replace(case, sessions=sessions)
        return msgspec.structs.replace(baseline, cases=cases)

    store = BaselineStore(project.path / "baselines")
    store.update(project.capacity.accelerator_key("cpu"), named)


def test_the_second_stage_slows_the_tree_alone_and_decides(settled):
    project, opened = settled

    ended = project.run(*AUDIT, "--ddp-settle=3m")

    assert ended.ret == pytest.ExitCode.OK
    (audit,) = audits_of(project)
    assert audit.stage == "pairs"
    assert audit.outcome is Outcome.REGRESSION
    assert audit.ratio == pytest.approx(1.08, abs=0.01)
    assert "by pairs of launches" in said(ended)
    ((a, b),) = opened  # the session itself settled nothing
    assert (a.name, b.name) == ("A", "B")
