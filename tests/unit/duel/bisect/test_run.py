"""Searches that are run, end in the middle, and go on."""

from __future__ import annotations

import contextlib

import msgspec
import pytest

from ddp_perf.core.launch import LaunchFailure
from ddp_perf.duel.bisect.commits import Commit, CommitLine
from ddp_perf.duel.bisect.find import run_bisect
from ddp_perf.duel.bisect.opening import CommitTurn, CommitTurns
from ddp_perf.duel.bisect.search import Question, place_of, search_state
from ddp_perf.errors import ConfigError, LaunchError
from ddp_perf.session.measure.experiment import open_log
from tests.builders import FakeLauncher, make_case, make_failure, make_launch

LENGTH, AT, BROKEN, LACKING = 8, 5, 3, 6
CASE = make_case()


def opened_log(directory):
    return contextlib.closing(open_log(directory, {"case": "x"}, {}))


def commit_hash(place):
    return f"{place:x}".rjust(4, "c").ljust(40, "0")


def make_line(length=LENGTH):
    commits = tuple(
        Commit(
            hash=commit_hash(place),
            author="Ada",
            date="2026-01-01",
            subject=f"Commit {place}",
            parents=(commit_hash(place - 1),),
        )
        for place in range(length + 1)
    )
    return CommitLine(repository="/r", commits=commits)


class Project:
    """Commits of which one is slower, one cannot be imported, and one lacks the case."""

    def __init__(self, directory):
        self.directory, self.now = directory, 100.0
        self.launched, self.opened, self.closed = [], [], []
        self.fail = {BROKEN: make_failure(CASE, traceback="Traceback\nImportError: no tanh")}

    def answer(self, place):
        def launch(request):
            self.now += 2.0
            self.launched.append(place)
            if (failure := self.fail.get(place)) is not None:
                if isinstance(failure, LaunchFailure):
                    return failure
                raise failure
            step_s = 0.02 * (3 if place >= AT else 1) * (1 + 0.001 * (len(self.launched) % 7))
            return make_launch(request.case, request.round, step_s=step_s, cpu_s=(step_s,) * 10)

        return launch

    @contextlib.contextmanager
    def open(self, commit):
        place = make_line().commits.index(commit)
        if place == LACKING:
            raise ConfigError("no suite has the case")
        self.opened.append(place)
        yield CommitTurn(FakeLauncher(self.answer(place)), CASE, ())
        self.closed.append(place)

    def run(self, *, until=10_000.0, on_launch=lambda launch: None):
        with (
            opened_log(self.directory) as log,
            contextlib.closing(CommitTurns(make_line(), self.open)) as turns,
        ):
            question = Question(length=LENGTH)
            run_bisect(question, log, turns, until=until, on_launch=on_launch)
            return search_state(question, log.entries, ended=True), log.entries


@pytest.fixture
def project(tmp_path, monkeypatch):
    made = Project(tmp_path)
    monkeypatch.setattr("time.monotonic", lambda: made.now)
    return made


def test_the_slower_commit_is_found_and_broken_ones_are_skipped(project):
    now, launches = project.run()

    assert [(one.first, one.last) for one in now.suspects] == [(AT, AT)]
    assert project.launched.count(BROKEN) <= 1
    reasons = {BROKEN: "exited with code 3: ImportError: no tanh", LACKING: "no suite has the case"}
    assert now.untestable.items() <= reasons.items()
    assert sum(launch.failure is None for launch in launches) == sum(
        place != BROKEN for place in project.launched
    )


def test_at_most_four_commits_have_servers(project):
    def check(launch):
        assert len(project.opened) - len(project.closed) <= 4
        assert not {0, LENGTH} & set(project.closed)

    project.run(on_launch=check)

    assert sorted(project.opened) == sorted(project.closed)
    assert project.opened.count(0) == project.opened.count(LENGTH) == 1


def test_a_search_that_ends_after_each_pair_asks_what_a_whole_one_asks(project, tmp_path):
    project.run()
    whole, project.launched = project.launched, []
    project.directory = tmp_path / "again"
    now = None
    while now is None or now.outcome == "undecided":
        now, _ = project.run(until=project.now + 5.0)  # a pair takes 4 s
    assert project.launched == whole


@pytest.mark.parametrize("number", [1, 2, 12, 13])
def test_an_interrupt_loses_no_finished_launch(project, number):
    answer = project.answer

    def interrupted(place):
        inner = answer(place)

        def launch(request):
            if len(project.launched) == number:
                raise KeyboardInterrupt
            return inner(request)

        return launch

    project.answer = interrupted
    with pytest.raises(KeyboardInterrupt):
        project.run()
    project.answer = answer

    with opened_log(project.directory) as log:
        assert [place_of(launch) for launch in log.entries] == project.launched
    assert project.run()[0].outcome == "found"


@pytest.mark.parametrize(("place", "name"), [(0, "good"), (LENGTH, "bad")])
@pytest.mark.parametrize("how", [make_failure(CASE), LaunchError("the server ended")])
def test_good_or_bad_that_fails_ends_the_search(project, place, name, how):
    project.fail[place] = how

    with pytest.raises(LaunchError, match=rf"^{name} cannot be launched.*"):
        project.run()


def test_a_commit_whose_server_does_not_start_is_skipped(project):
    project.fail[4] = LaunchError("the server ended")

    now, _ = project.run()

    assert now.untestable[4] == "the server ended"
    assert [(one.first, one.last) for one in now.suspects] == [
        (3 if BROKEN in now.untestable else 4, AT)
    ]


def test_the_budget_ends_before_a_pair_that_takes_too_long(project):
    _, launches = project.run(until=project.now + 9.0)  # each pair takes 4 s

    assert len(launches) == 4


def test_a_later_run_tries_a_failed_commit_again_where_the_step_may_be(project):
    project.fail[AT - 1] = make_failure(CASE, kind="signal", detail="killed by SIGKILL")
    now, _ = project.run()
    assert [(one.first, one.last) for one in now.suspects] == [(BROKEN, AT)]
    del project.fail[AT - 1]  # the memory is free again

    now, launches = project.run()

    assert [(one.first, one.last) for one in now.suspects] == [(AT, AT)]
    assert AT - 1 not in now.untestable
    assert (
        sum(launch.failure is not None and place_of(launch) == AT - 1 for launch in launches) == 1
    )


def test_a_commit_that_fails_again_is_tried_once_in_each_run(project):
    project.fail[AT - 1] = make_failure(CASE)
    project.run()
    before = len(project.launched)

    now, _ = project.run()

    assert project.launched[before:].count(AT - 1) == 1
    assert [(one.first, one.last) for one in now.suspects] == [(BROKEN, AT)]


def test_one_failure_of_a_commit_that_was_launched_does_not_skip_it(project):
    answer, failed = project.answer, []

    def once(place):
        inner = answer(place)

        def launch(request):
            if place == AT and project.launched.count(AT) == 1 and not failed:
                failed.append(place)
                return make_failure(request.case, request.round)
            return inner(request)

        return launch

    project.answer = once

    now, _ = project.run()

    assert failed
    assert [(one.first, one.last) for one in now.suspects] == [(AT, AT)]


def test_all_commits_are_measured_as_bad_is():
    own = msgspec.structs.replace(CASE, schedule=msgspec.structs.replace(CASE.schedule, steps=999))

    @contextlib.contextmanager
    def opened(commit):
        yield CommitTurn(FakeLauncher(), CASE if commit.subject == f"Commit {LENGTH}" else own, ())

    assert CommitTurns(make_line(), opened).turn(0).case.schedule == CASE.schedule
