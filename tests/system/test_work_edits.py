"""Each edit of one line of a user's code that makes the step do more is red, and is named."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

import pytest

from ddp_perf.baselines.work import StoredWork, WorkBaseline
from ddp_perf.config.loading import Overrides, load_cases
from ddp_perf.core.verdict import Outcome
from ddp_perf.core.work import CountRequest, StepWork
from ddp_perf.launch.engines.machine import ThisMachine
from ddp_perf.launch.server_launcher import ServerLauncher
from ddp_perf.work.session import judge_work
from ddp_perf.work.text import verdict_lines
from tests.work_edits import HEAVIER, INCLUDED, NEUTRAL, SUITE

ROOT = Path(__file__).parents[2]
USERS = ROOT / "tests" / "data" / "work"
TORCH = "2.13"  # of both sides: the name alone


@pytest.fixture(scope="module")
def counted(launcher, tmp_path_factory):
    """``counted(*edits)``: the case of the user's project after the edits, its file, its counts.

    The counts are those of rank 0: test_work.py shows that the last rank has to agree.
    """
    known = {}

    def count(*edits):
        if edits not in known:
            project = tmp_path_factory.mktemp("project")
            shutil.copytree(USERS, project, dirs_exist_ok=True)
            for file, old, new in edits:
                text = (project / file).read_text("utf-8")
                assert old in text
                (project / file).write_text(text.replace(old, new), "utf-8")
            (case,) = load_cases([project / SUITE], Overrides(), (str(project),))
            work = launcher.count(CountRequest(case=case, import_paths=(str(project),)))
            assert isinstance(work, StepWork), f"{work}\n{work.traceback}"
            known[edits] = case, project / SUITE, work
        return known[edits]

    return count


@pytest.fixture
def judged(counted):
    """``judged(edit)``: the verdict on an edit."""

    def judge(edit):
        given = () if edit.given is None else (edit.given,)
        before, _, stored = counted(*given)
        case, file, work = counted(*given, (edit.file, edit.old, edit.new))
        entry = StoredWork(options=before.work(), step=stored)
        baseline = WorkBaseline(suite=case.suite, torch=TORCH, cases={case.id: entry})
        return judge_work(case, work, [baseline], torch=TORCH, suite_file=file)

    return judge


def each(edits):
    """Return the edits as parameters; two of three are slow."""
    slow = [pytest.mark.slow]
    return [
        pytest.param(edit, id=edit.name.replace(" ", "-"), marks=slow if number % 3 else [])
        for number, edit in enumerate(edits)
    ]


@pytest.mark.parametrize("edit", each(HEAVIER))
def test_an_edit_that_makes_the_step_do_more_is_red_and_named(judged, edit):
    verdict = judged(edit)

    assert verdict.outcome is Outcome.REGRESSION, verdict.reason
    first = verdict_lines(verdict)[1]
    assert edit.line in first, "\n".join(verdict_lines(verdict))


@pytest.mark.parametrize("edit", each(NEUTRAL))
def test_an_edit_that_changes_no_work_is_green(judged, edit):
    verdict = judged(edit)

    assert verdict.outcome is Outcome.PASS, "\n".join(verdict_lines(verdict))


@pytest.mark.slow
@pytest.mark.parametrize(("suite", "edit"), INCLUDED, ids=[edit.name for _, edit in INCLUDED])
def test_an_edit_of_an_included_workload_is_red_and_named(tmp_path, suite, edit):
    shutil.copytree(ROOT / "ddp_perf", tmp_path / "ddp_perf")
    path = tmp_path / "ddp_perf" / "workloads" / f"{edit.name}.py"
    text = path.read_text("utf-8")
    assert text.count(edit.old) == 1
    path.write_text(text.replace(edit.old, edit.new), "utf-8")
    overrides = Overrides(world_sizes=(2,))
    case = load_cases([ROOT / "bench_configs" / suite], overrides)[-1]

    def count(package):
        with contextlib.closing(ServerLauncher(ThisMachine(package=package))) as launcher:
            return launcher.count(CountRequest(case=case))

    entry = StoredWork(options=case.work(), step=count(ROOT))
    baseline = WorkBaseline(suite=case.suite, torch=TORCH, cases={case.id: entry})
    verdict = judge_work(case, count(tmp_path), [baseline], torch=TORCH, package_differs=True)

    assert verdict.outcome is Outcome.REGRESSION, verdict.reason
    assert edit.line in verdict_lines(verdict)[1], "\n".join(verdict_lines(verdict))
