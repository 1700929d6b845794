"""A pytest session with its second stage: what it remembers, accepts, stores and says."""

from __future__ import annotations

import contextlib
import os

import msgspec
import pytest

from ddp_perf.core.verdict import Outcome
from ddp_perf.duel.open_sides import OpenSide
from ddp_perf.duel.run import run_duel
from ddp_perf.settle import settling
from tests.repositories import Repository
from tests.unit.duel.played_sides import PlayedSide, make_prepared

ONE, TWO = "mlp-none-fp32-ws1-b16", "mlp-ddp-fp32-ws2-b16"


class Ticks:
    """A clock of its own, which only launches of both sides advance."""

    now = 0.0


class Settled:
    """The project of the other tests in git, with sides that are played."""

    def __init__(self, project, monkeypatch):
        self.project = project
        self.repository = Repository(project.path)
        self.repository.write({".gitignore": "results.json\n"})
        self.commit("a project")
        self.slower = 1.0
        self.opened = []
        project.steps_s = 0.010
        monkeypatch.setattr(settling.Settling.__init__, "__kwdefaults__", {
            **settling.Settling.__init__.__kwdefaults__,
            "sides": self._sides,
        })  # fmt: skip

    def commit(self, message):
        self.repository.git("add", "--all")
        self.repository.git("commit", "--quiet", "--message", message)

    @contextlib.contextmanager
    def _sides(self, reference, project, say):
        self.opened.append(reference)
        a, b = (
            PlayedSide(Ticks, seed, slower=slower, cpu=slower)
            for seed, slower in ((1, 1.0), (2, self.slower))
        )
        yield (
            OpenSide(make_prepared("A", project.root), a),
            OpenSide(make_prepared("B", project.root), b),
        )

    def first(self):
        """Store a first session, and repeat it on the days before."""
        self.project.results("--save-baseline")
        self.project.repeat_stored(6)

    def edit(self):
        """Change a file that may change every case."""
        self.repository.write({"requirements.txt": "numpy\n"})

    def session(self, step_s, *arguments):
        self.project.answer = self.project.steps_of(step_s, step_s * 1.2)
        return self.project.results("--ddp-settle=10m", *arguments)["tiny"]


@pytest.fixture
def settled(project, monkeypatch, tmp_path):
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(project.path.parent))
    return Settled(project, monkeypatch)


def shown(done):
    """Return what a session shows, without its line ends."""
    return " ".join(str(done.stdout).split())


def outcome(result, case=ONE, metric="step_time"):
    return result.finding(case, metric).verdict.outcome


def test_a_stored_session_has_its_tree_and_its_packages(settled):
    settled.first()

    for case in settled.project.stored().values():
        for one in case.sessions:
            assert one.environment.tree == settled.repository.git("rev-parse", "HEAD^{tree}")
            assert one.environment.packages["torch"]


def test_edits_that_are_not_committed_are_kept_with_the_session(settled):
    settled.edit()
    settled.first()

    case = settled.project.stored()[ONE]
    tree = case.sessions[-1].environment.tree
    patch = settled.project.path / "baselines" / "code" / f"{tree}.patch"
    assert b"+numpy" in patch.read_bytes()
    assert b"baselines" not in patch.read_bytes()


def test_what_sessions_write_is_no_code(settled):
    """Outputs of ranks and traces of a profiler are in artifacts/, which nobody need ignore."""
    for name in ("artifacts/trace.bin", "report/index.html", "junit.xml"):
        path = settled.project.path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(os.urandom(2**20 + 1))

    settled.project.results("--save-baseline", "--ddp-report=report", "--junitxml=junit.xml")

    for case in settled.project.stored().values():
        tree = case.sessions[-1].environment.tree
        assert tree == settled.repository.git("rev-parse", "HEAD^{tree}")


def test_a_session_that_stores_nothing_keeps_no_patch(settled):
    settled.edit()
    settled.project.results()

    assert not (settled.project.path / "baselines" / "code").exists()


def test_a_slower_session_of_unchanged_code_names_the_machine(settled):
    settled.first()

    result = settled.session(0.015)

    assert outcome(result) is Outcome.REGRESSION
    assert "the machine got slower" in result.finding(ONE, "step_time").reason
    assert settled.opened == []


def test_changed_code_is_settled_and_named_with_the_next_command(settled):
    settled.first()
    settled.edit()
    settled.slower = 1.5

    result = settled.session(0.015)

    assert outcome(result) is Outcome.REGRESSION
    noted = result.settled[ONE]
    assert noted.pairs >= 6
    assert noted.changed == ("requirements.txt may change every case",)
    done = settled.project.run("--ddp-settle=10m")
    assert f" launches of today's code and that of {noted.label}; " in shown(done)
    changed = f"changed since {noted.label}: requirements.txt may change every case"
    assert shown(done).count(changed) == 1, shown(done)  # for both cases
    done.stdout.fnmatch_lines([f"next: git diff {noted.commit}"])
    assert done.ret == pytest.ExitCode.TESTS_FAILED


def test_a_slow_day_is_no_slower_code(settled):
    settled.first()
    settled.edit()

    result = settled.session(0.015)

    assert {outcome(result, case) for case in (ONE, TWO)} == {Outcome.PASS}


def test_too_little_time_names_the_time_that_is_enough(settled):
    settled.first()
    settled.edit()

    settled.project.answer = settled.project.steps_of(0.0108, 0.013)
    done = settled.project.run("--ddp-settle=1s")

    assert "not settled: there was no time for it; changed since the session of " in shown(done)
    assert "about 47 s would be enough" in shown(done)


def improve(settled, *arguments):
    """Measure a session that is not clear, and whose code is settled to be faster."""
    settled.first()
    settled.edit()
    settled.slower = 0.7
    return settled.session(0.0108, *arguments)


def test_a_settled_improvement_becomes_the_level_of_an_appended_session(settled):
    result = improve(settled, "--save-baseline=append")

    improved = [id_ for id_ in (ONE, TWO) if outcome(result, id_) is Outcome.IMPROVEMENT]
    assert improved
    for case_id in improved:
        case = settled.project.stored()[case_id]
        (entry,) = case.log
        assert entry.reason.startswith("a settled improvement: -")
        assert entry.date == result.date == case.sessions[-1].date
        assert len(case.history("step_time").at_level) == 1
        assert result.saved[case_id].mode == "accept"


@pytest.mark.parametrize("mode", [[], pytest.param(["--save-baseline"], marks=pytest.mark.slow)])
def test_an_improvement_is_accepted_only_where_sessions_are_appended(settled, mode):
    result = improve(settled, *mode)

    assert Outcome.IMPROVEMENT in {outcome(result, id_) for id_ in (ONE, TWO)}
    assert all(case.log == () for case in settled.project.stored().values())


def test_the_ini_file_switches_the_acceptance_off(settled):
    ini = settled.project.path / "tox.ini"
    ini.write_text(
        ini.read_text(encoding="utf-8").replace(
            "[pytest]", "[pytest]\nddp_accept_improvements = false"
        ),
        encoding="utf-8",
    )
    settled.commit("the switch")

    result = improve(settled, "--save-baseline=append")

    assert Outcome.IMPROVEMENT in {outcome(result, id_) for id_ in (ONE, TWO)}
    for case in settled.project.stored().values():
        assert case.log == ()
        assert case.sessions[-1].date == result.date  # it is appended as ever


def test_code_that_cannot_be_kept_is_a_line_of_a_stored_session(settled):
    Repository(settled.project.path / "vendor")
    line = "the code of this session cannot be run again by later ones: vendor/ is a repository"

    assert line not in shown(settled.project.run())
    done = settled.project.run("--save-baseline")
    assert f"{line} of its own; add it to .gitignore" in shown(done)
    (case, _) = settled.project.stored().values()
    assert case.sessions[-1].environment.tree is None


def test_a_project_without_git_says_how_it_could_be_settled(project, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(project.path.parent))

    done = project.run("--save-baseline")

    assert "later ones: it is not in a git repository with a commit; git init" in shown(done)


def test_the_stored_sessions_have_a_quarter_of_the_rate_beside_a_second_stage(settled):
    settled.first()
    alone = settled.project.results()["tiny"].alpha

    assert settled.session(0.010).alpha == pytest.approx(alone / 4)


def test_the_rate_of_pairs_is_shared_by_all_cases_that_tests_may_request(settled, monkeypatch):
    settled.first()
    settled.edit()
    (settled.project.path / "test_own.py").write_text(
        "import pytest\n"
        "@pytest.mark.cpu\n"
        f"@pytest.mark.parametrize('case', [{ONE!r}, {TWO!r}])\n"
        "def test_own(ddp_measure, case):\n"
        "    ddp_measure(case)\n",
        encoding="utf-8",
    )
    rates = []
    monkeypatch.setattr(
        settling,
        "run_duel",
        lambda request, *sides, **options: (
            rates.append(request.false_alarm_rate) or run_duel(request, *sides, **options)
        ),
    )

    settled.session(0.015, "test_own.py")

    assert len(rates) == 2
    assert sum(rates) <= 0.75 * 0.01 * (1 + 1e-9)


def test_the_results_file_of_an_unsettled_session_has_nothing_of_it(settled):
    settled.first()
    settled.edit()

    result = settled.project.results()["tiny"]

    assert result.settled == {}
    assert msgspec.to_builtins(result)["unkept"] is None
