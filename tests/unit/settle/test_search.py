"""From a settled red case to its commit."""

from __future__ import annotations

import random
import time

import pytest

from ddp_perf.core.injection import parse_injection
from ddp_perf.core.verdict import Culprit, Outcome
from ddp_perf.errors import SideError
from ddp_perf.settle.settling import find_culprit, is_searchable
from tests.builders import make_environment
from tests.unit.duel.played_sides import PlayedSide

REGRESSION = Outcome.REGRESSION
SLOWER = "def build(context):\n    return slow(context)\n"
CULPRIT = Culprit(kind="commit", name="5" * 40, probability=1.0, launches=0, seconds=0.0, why="")


@pytest.fixture
def red(project):
    """``red(find, …)`` settles a slower session of committed code; ``find`` is the search."""

    def settle(find, **request):
        baseline = project.baseline(project.session(1))
        project.repository.commit({"model.py": SLOWER}, "slower")
        slower = {"slower": 1.4, "cpu": 1.4}
        project.play(PlayedSide(project.clock, 1), PlayedSide(project.clock, 2, **slower))
        settling = project.settling(find=find, **request)
        return settling(project.result(), baseline, project.partial.append)

    return settle


def test_the_commit_of_the_worst_red_case_is_searched_and_noted(project, red):
    asked = []

    def find(request, case, good, *rest, **options):
        asked.append((case.id, good, request.state.commit))
        return CULPRIT

    result = red(find)

    ((case_id, good, bad),) = asked
    assert bad != good
    assert bad == project.state().commit
    assert {one.culprit for one in result.settled.values()} == {None, CULPRIT}
    assert result.settled[case_id].culprit == CULPRIT
    assert [one.searched for one in result.settled.values()].count(True) == 1
    assert project.partial[-1] == result


def test_the_search_goes_on_in_the_next_red_session_of_the_same_code(project):
    good = project.session(1)
    first = project.state().commit
    project.repository.commit({"model.py": SLOWER}, "slower")
    red = project.session(2, verdicts={"step_time": REGRESSION})
    asked = []

    def find(request, case, good, *rest, **options):
        asked.append((good, request.state.commit))
        return CULPRIT

    settling = project.settling(find=find)
    result = settling(project.result(REGRESSION), project.baseline(good, red), print)

    ((good_commit, today),) = asked
    assert first.startswith(good_commit)
    assert today == project.state().commit
    assert [one.as_before for one in result.settled.values()] == [True, True]
    assert {one.culprit for one in result.settled.values()} == {None, CULPRIT}
    assert project.opened == []


@pytest.mark.parametrize("commits", [True, False], ids=["commits", "edits alone"])
@pytest.mark.parametrize("slower", [1.0, pytest.param(3.0, marks=pytest.mark.slow)])
def test_once_a_case_is_red_pairs_leave_a_third_of_the_time_to_a_search(
    project, monkeypatch, commits, slower
):
    """The other case stays open. Where uncommitted edits touch them, nothing can be searched."""
    seeded = random.Random
    monkeypatch.setattr(random, "Random", lambda seed: seeded(seed or 0))  # the order of launches
    baseline = project.baseline(project.session(1))
    if commits:
        project.repository.commit({"model.py": SLOWER}, "slower")
    else:
        project.edit()
    restless = {"noise": 0.3, "cpu_noise": 0.3}
    slow = {**restless, "slower": {project.cases()[0].id: slower}}
    project.play(PlayedSide(project.clock, 1, **restless), PlayedSide(project.clock, 2, **slow))
    settling = project.settling(find=lambda *_, **__: None, budget_s=300)

    began = project.clock.now
    settling(project.result(), baseline, project.partial.append)

    red = [one for one in project.partial[-1].findings if one.verdict.outcome is REGRESSION]
    spent_s = project.clock.now - began
    assert bool(red) == (slower > 1)
    assert (spent_s < 230) == (commits and slower > 1), spent_s


def test_a_search_that_fails_says_so_and_keeps_the_verdicts(project, red):
    def find(*arguments, **options):
        raise SideError("good: its suite is gone")

    result = red(find)

    assert all(one.pairs for one in result.settled.values())
    assert "the commit was not found: good: its suite is gone" in project.said


def test_ranks_that_were_slowed_on_purpose_have_no_culprit(red):
    def find(*arguments, **options):
        raise AssertionError

    assert red(find, injections=(parse_injection("compute:10%"),)).settled


def search(project, good):
    return find_culprit(
        project.request(),
        project.cases()[0],
        good,
        make_environment(),
        until=time.monotonic(),
        say=project.said.append,
    )


def searchable(project, good):
    return is_searchable(project.cases()[0], good, project.state(), project.project)


def test_nothing_is_searched_where_no_commit_lies_between_or_edits_touch_the_case(project):
    good = project.state().commit[:12]
    assert not searchable(project, good)

    project.repository.commit({"other.py": "x = 1\n"}, "other")
    assert searchable(project, good)

    project.edit()
    assert not searchable(project, good)


@pytest.mark.slow
def test_the_only_commit_that_the_case_reads_is_named_without_a_launch(
    project, tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    good = project.state().commit[:12]
    project.repository.commit({"README.md": "more\n"}, "words")
    slower = project.repository.commit({"model.py": SLOWER}, "slower")
    project.repository.commit({"docs/a.md": "more\n"}, "words again")

    found = search(project, good)

    assert found is not None
    assert (found.name, found.title, found.launches) == (slower, "slower", 0)
    assert found.probability == 1.0
