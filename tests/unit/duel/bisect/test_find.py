"""Searches from the line of commits to the culprit, with played launches and real repositories."""

from __future__ import annotations

import contextlib
import subprocess

import pytest

from ddp_perf.config.loading import Overrides, load_cases
from ddp_perf.duel.bisect.commits import commit_line
from ddp_perf.duel.bisect.culprit import culprit_of
from ddp_perf.duel.bisect.find import CommitSearch, find_commit
from ddp_perf.duel.bisect.opening import CommitTurn, CommitTurns
from ddp_perf.duel.bisect.report import build_bisect
from ddp_perf.errors import ConfigError
from ddp_perf.render.units import culprit_text
from ddp_perf.session.measure.experiment import open_log
from tests.bisect_repository import SUITE, WORKLOAD
from tests.builders import FakeLauncher, make_case, make_failure, make_launch
from tests.unit.duel.bisect.test_run import make_line
from tests.works import SITE, make_work

SUITE_FILE = "bench_configs/rows.yaml"
LENGTH, AT = 32, 21
LAUNCH_S, COUNT_S = 2.0, 0.5


def opened_log(directory):
    return contextlib.closing(open_log(directory, {"case": "x"}, {}))


class PlayedLauncher(FakeLauncher):
    """The launcher of a commit, whose step is three times as long from ``AT`` on."""

    def __init__(self, project, place):
        super().__init__(self._launch)
        self._project, self._place = project, place

    def count(self, request):
        self._project.now += COUNT_S
        self._project.counted.append(self._place)
        if self._place in self._project.broken:
            return make_failure(request.case)
        return make_work((SITE, {"count": self._project.operations(self._place)}))

    def _launch(self, request):
        self._project.now += LAUNCH_S
        self._project.launched.append(self._place)
        if self._place in self._project.broken:
            return make_failure(request.case, request.round)
        step_s = (
            0.02 * (3 if self._place >= AT else 1) * (1 + 0.001 * (len(self._project.launched) % 7))
        )
        return make_launch(request.case, request.round, step_s=step_s, cpu_s=(step_s,) * 10)


class PlayedProject:
    """A line of commits, some of which cannot run."""

    def __init__(self, directory, monkeypatch):
        self.line, self.case = make_line(LENGTH), make_case()
        self.paths, self.suites = (), ()
        self.log, self.now = directory / "log", 100.0
        self.launched, self.counted, self.progress = [], [], []
        self.broken = set()
        self.operations = lambda place: 1
        monkeypatch.setattr("time.monotonic", lambda: self.now)

    @contextlib.contextmanager
    def open(self, commit):
        place = self.line.commits.index(commit)
        yield CommitTurn(PlayedLauncher(self, place), self.case, self.paths, self.suites)

    def find(self, *, seconds=10_000.0, **options):
        with opened_log(self.log) as log:
            return find_commit(
                self.line,
                self.open,
                log,
                until=self.now + seconds,
                on_progress=self.progress.append,
                **options,
            )

    def between(self):
        """The launched commits that are neither good nor bad, in the order of their first one."""
        return [p for p in dict.fromkeys(self.launched) if p not in (0, self.line.length)]


@pytest.fixture
def project(tmp_path, monkeypatch):
    return PlayedProject(tmp_path, monkeypatch)


@pytest.fixture
def touching(project, tmp_path):
    """Give the project a repository in which only some commits touch the workload."""

    def write(*places):
        directory = tmp_path / "project"
        write_history(directory, set(places))
        project.line = commit_line(directory, "good", "main")
        project.paths, project.suites = (str(directory),), (directory / SUITE_FILE,)
        (project.case,) = load_cases(project.suites, Overrides(), project.paths)
        return project

    return write


def write_history(directory, touching):
    """Write good and ``LENGTH`` commits after it. Those that touch no workload edit other files."""
    directory.mkdir()
    git = ["git", "-C", str(directory)]
    subprocess.run([*git, "init", "-q", "-b", "main"], check=True)
    parts = []
    for place in range(LENGTH + 1):
        files = {"tools.py": f"NUMBER = {place}\n", "docs/page.md": f"{place}\n"}
        if place in touching or not place:
            source = WORKLOAD.format(rows=8, width=8, edit=place, extra="")
            files = {**files, "perf_workload.py": source}
        if not place:
            files[SUITE_FILE] = SUITE.format(strategy="none", ranks=1, steps=8, warmup=2)
        parts.append(written_commit(place, files))
    stream = "".join(parts) + "reset refs/tags/good\nfrom :1\n\n"
    subprocess.run([*git, "fast-import", "--quiet"], input=stream.encode(), check=True)
    subprocess.run([*git, "reset", "-q", "--hard"], check=True)


def written_commit(place, files):
    lines = [
        "commit refs/heads/main",
        f"mark :{place + 1}",
        f"committer Ada <ada@example.org> {1_700_000_000 + place} +0000",
        data(f"Commit {place}"),
        *(f"M 100644 inline {name}\n{data(text)}" for name, text in files.items()),
    ]
    return "\n".join(lines) + "\n"


def data(text):
    return f"data {len(text.encode())}\n{text}"


def test_the_only_commit_that_touches_the_case_is_known_without_a_launch(touching):
    project = touching(7)

    result = project.find()

    assert project.launched == []
    assert (result.outcome, result.probability, result.launches) == ("found", 1.0, 0)
    assert [one.subject for one in result.culprits[0].commits] == ["Commit 7"]
    assert result.chances == tuple(float(place == 7) for place in range(1, LENGTH + 1))
    assert set(project.counted) == {0, LENGTH}  # they have the steps before and after it
    assert result.culprits[0].work == ()
    report = build_bisect(result)
    assert "1 of them can change what the case does" in report.about[0].text
    assert "is the only commit that can change what the case does" in report.headline
    assert (report.table.rows, report.certainty) == ((), None)
    assert culprit_text(culprit_of(result)) == (
        f'commit {result.line.commits[7].short} "Commit 7" by Ada:'
        " the only commit that can change what the case does"
    )


def test_if_no_commit_touches_the_case_none_is_to_blame(touching):
    project = touching()

    result = project.find()

    assert (result.outcome, result.culprits, project.launched) == ("untouched", (), [])
    assert len(result.innocent) == LENGTH
    assert culprit_of(result) is None
    assert build_bisect(result).verdict == "none"


def test_commits_that_touch_nothing_are_never_launched_and_have_no_probability(touching):
    project = touching(5, AT, 30)

    result = project.find()

    assert set(project.launched) <= {0, 5, AT, LENGTH}  # bad stands for 30
    assert [one.subject for one in result.culprits[0].commits] == [f"Commit {AT}"]
    assert {p for p, chance in enumerate(result.chances, start=1) if chance} <= {5, AT, 30}
    assert len(result.innocent) == LENGTH - 3


def test_the_last_touching_commit_is_found_though_bad_is_launched_in_its_stead(touching):
    project = touching(5, 9, AT)

    result = project.find()

    assert [one.subject for one in result.culprits[0].commits] == [f"Commit {AT}"]
    assert set(project.launched) <= {0, 5, 9, LENGTH}


def test_the_commit_at_which_the_work_grows_is_launched_first_and_the_one_before_it(project):
    project.operations = lambda place: 2 if place >= AT else 1

    result = project.find()

    assert project.between() == [AT, AT - 1]
    assert len(set(project.counted)) <= 2 + 5  # both ends, and halves of 32
    assert [one.subject for one in result.counted] == [f"Commit {AT - 1}", f"Commit {AT}"]
    assert [one.subject for one in result.culprits[0].commits] == [f"Commit {AT}"]
    (change,) = result.culprits[0].work
    assert (change.before, change.after) == (1, 2)


def test_of_several_commits_that_add_work_the_one_that_adds_most_is_launched_first(project):
    project.operations = lambda place: 1 + (place >= 3) + 9 * (place >= AT) + (place >= 28)

    project.find()

    assert project.between()[:2] == [AT, AT - 1]


def test_a_commit_that_adds_work_and_no_time_is_not_blamed(project):
    project.operations = lambda place: 2 if place >= 4 else 1

    result = project.find()

    assert project.between()[:2] == [4, 3]
    assert [one.subject for one in result.culprits[0].commits] == [f"Commit {AT}"]


@pytest.mark.parametrize("counts", [True, False])
def test_without_a_difference_of_counts_the_middle_is_launched_first(project, counts):
    result = project.find(counts=counts)

    assert project.between()[0] == LENGTH // 2
    assert bool(project.counted) == counts
    assert result.counted == ()
    assert [one.subject for one in result.culprits[0].commits] == [f"Commit {AT}"]


def test_commits_that_fail_are_passed_over_and_share_the_blame(project):
    project.broken = {16, AT - 1}
    project.operations = lambda place: 2 if place >= AT else 1

    result = project.find()

    assert project.between()[:2] == [AT, AT - 2]  # the nearest that can be counted
    (culprit,) = result.culprits
    assert [one.subject for one in culprit.commits] == [f"Commit {AT - 1}", f"Commit {AT}"]
    assert culprit.untestable == 1
    assert "or the commit before it, which cannot be launched" in culprit_of(result).why


def test_time_that_is_over_leaves_the_fewest_suspects(touching):
    project = touching(5, 9, AT, 30)

    result = project.find(seconds=14 * LAUNCH_S, counts=False)

    assert result.outcome == "undecided"
    assert culprit_of(result) is None
    assert {one.subject for one in result.suspects} <= {
        f"Commit {place}" for place in (5, 9, AT, 30)
    }


def test_counting_takes_a_part_of_the_time_alone(project):
    project.operations = lambda place: 2 if place >= AT else 1

    project.find(seconds=20 * COUNT_S)

    assert len(set(project.counted)) < 2 + 5
    assert project.launched


def test_a_search_that_goes_on_counts_no_more_than_the_culprit(project):
    project.operations = lambda place: 2 if place >= AT else 1
    project.find(seconds=24 * LAUNCH_S)
    assert project.between()
    project.counted.clear()

    project.find()

    assert set(project.counted) <= {AT - 1, AT}


def test_an_interrupted_search_has_what_was_found(project):
    def interrupt(text):
        if "12 launches" in text:
            raise KeyboardInterrupt

    with (
        opened_log(project.log) as log,
        contextlib.closing(CommitTurns(project.line, project.open)) as turns,
    ):
        search = CommitSearch(project.line, turns, log, on_progress=interrupt)
        with pytest.raises(KeyboardInterrupt):
            search.run(until=project.now + 10_000)

    assert (search.result().outcome, search.result().launches) == ("undecided", 12)


def test_a_line_whose_bad_commit_lacks_the_case_is_refused(project):
    @contextlib.contextmanager
    def refused(commit):
        raise ConfigError("no suite has the case")
        yield

    project.open = refused

    with pytest.raises(ConfigError, match="no suite has the case"):
        project.find()
