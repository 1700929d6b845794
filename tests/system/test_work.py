"""``pytest -m work`` in a user's project, with real counting: stored once, and red by its line."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ddp_perf.baselines.work import WorkStore
from tests.projects import REPOSITORY

MODEL = """\
import time
from pathlib import Path

import torch
from torch import nn
from ddp_perf.workloads.workload import BuildContext, Workload


def loss(module, batch):
    return module(batch[0]).square().mean()


def build(context: BuildContext, *, width: int) -> Workload:
    return Workload(
        model=nn.Linear(width, width).to(context.device),
        batch=(torch.randn(context.batch_size, width, device=context.device),),
        loss=loss,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    )
"""
SUITE = """\
suite: ours
tier: cpu
workload: our_model:build
model: {width: 16}
world_sizes: [1, 2]
batch_sizes: [4]
steps: 8
warmup: 2
launches: 2
"""
TWO = "our_model.build-ddp-fp32-ws2-b4"
WAITING = """\
def build(context: BuildContext, *, width: int) -> Workload:
    Path(f"began-{context.rank}").touch()
    time.sleep(600)
"""


class Project:
    """A project of a user; its sessions are processes whose environment names it."""

    def __init__(self, path):
        self.path = path
        (path / "bench_configs").mkdir(parents=True)
        (path / "tests").mkdir()
        shutil.copy(REPOSITORY / "tests" / "work" / "test_work.py", path / "tests")
        (path / "pytest.ini").write_text('[pytest]\naddopts = -m "not perf and not work"\n')
        (path / "bench_configs" / "ours.yaml").write_text(SUITE)
        self.model(MODEL)

    def model(self, text):
        (self.path / "our_model.py").write_text(text)

    def start(self, *arguments):
        kept = {name: text for name, text in os.environ.items() if "PYTEST" not in name}
        environment = kept | {"PYTHONPATH": str(REPOSITORY), "PROJECT_OF_TEST": str(self.path)}
        return subprocess.Popen(
            [sys.executable, "-m", "pytest", "-p", "ddp_perf.plugin", *arguments],
            cwd=self.path,
            env=environment | {"COLUMNS": "200", "PYTHONUTF8": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            start_new_session=True,
            # A shell that runs the tests in the background ignores it for all that it starts.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )

    def run(self, *arguments, code=0):
        process = self.start("-m", "work", *arguments)
        shown, _ = process.communicate(timeout=300)
        assert process.returncode == code, shown
        return shown

    def stored(self):
        return (self.path / "baselines" / "work").glob("*/ours.json")

    def processes(self):
        """Return the command of each process that a session of this project started."""
        mark = f"PROJECT_OF_TEST={self.path}\0".encode()
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if mark in (process / "environ").read_bytes():
                    found.append((process / "cmdline").read_bytes())
            except OSError:
                continue  # it has ended, or is another user's
        return found


@pytest.fixture
def project(tmp_path):
    return Project(tmp_path / "ours")


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A project whose counts one process has stored."""
    project = Project(tmp_path_factory.mktemp("stored") / "ours")
    assert " 2 skipped" in project.run("--save-baseline", "--ddp-strict")
    return project


def test_a_stored_step_stays_green_and_an_added_clone_is_red_by_its_line_until_accepted(
    project, stored
):
    shutil.copytree(stored.path / "baselines", project.path / "baselines")
    renamed = MODEL.replace("module", "network").replace("def loss", "# The loss.\ndef loss")
    project.model(renamed)
    assert " 2 passed" in project.run("--ddp-strict")

    project.model(MODEL.replace("batch[0])", "batch[0].clone())"))
    red = project.run(code=1)
    assert f"\n{TWO}: REGRESSION: the step does more work than stored: +1 aten.clone" in red
    assert "edited line: our_model.py:10 loss: " in red
    assert "in forward (our_model.py:10 loss)" in red
    assert "Traceback" not in red
    accept = red.splitlines()[-1]
    assert (
        accept == 'next: pytest -p ddp_perf.plugin -m work --save-baseline=accept --ddp-reason "…"'
    )

    assert " 2 skipped" in project.run("--save-baseline=accept", "--ddp-reason", "a copy, see #12")
    (file,) = project.stored()
    assert "a copy, see #12" in file.read_text("utf-8")


@pytest.mark.slow
def test_workers_of_xdist_count_what_one_process_counts_and_store_it_together(project, stored):
    (alone,) = stored.stored()

    shown = project.run("-n", "2", "--save-baseline", "--ddp-report=out")

    (together,) = project.stored()
    assert together.read_bytes() == alone.read_bytes()
    assert "2 workers [2 items]" in shown
    assert f"stored in {together}: 2 cases" in shown
    assert (project.path / "out" / "work.html").exists()
    two = ("-n", "2", "-k", "ws2", "--ddp-strict")
    project.model(MODEL.replace("batch[0])", "batch[0].clone())"))
    assert f"{TWO}: REGRESSION" in project.run(*two, code=1)
    assert "NO_BASELINE" in project.run(*two, "--ddp-batch-sizes=8", code=75)
    assert project.processes() == []


@pytest.mark.slow
def test_two_projects_count_at_the_same_time(project, tmp_path):
    wide = Project(tmp_path / "wide")
    (wide.path / "bench_configs" / "ours.yaml").write_text(SUITE.replace("16}", "32}"))

    sessions = [one.start("-m", "work", "--save-baseline") for one in (project, wide)]
    for process in sessions:
        shown, _ = process.communicate(timeout=300)
        assert " 2 skipped" in shown

    for one, width in ((project, 16), (wide, 32)):
        store = WorkStore(one.path / "baselines")
        (version,) = store.versions("ours")
        step = store.load("ours", version).cases[TWO].step
        assert step.structure.parameters == width * (width + 1)


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """What one session of three suites shows: each has a step of its own kind."""
    project = Project(tmp_path_factory.mktemp("three") / "ours")
    square = "module(batch[0]).square()"
    divided = f"{square}.mean() / (1 / {square}.sum().item())"
    reduced = "    torch.distributed.all_reduce(batch[0]) if context_rank else None\n"
    models = {
        "divides": MODEL.replace(f"{square}.mean()", divided),
        "raises": MODEL.replace("module(batch[0])", "module(batch[1])"),
        "waits": MODEL.replace("    return module(", f"{reduced}    return module(").replace(
            "    return Workload(",
            "    global context_rank\n    context_rank = context.rank\n    return Workload(",
        ),
    }
    (project.path / "bench_configs" / "ours.yaml").unlink()
    for name, model in models.items():
        (project.path / f"{name}.py").write_text(model)
        suite = SUITE.replace("ours", name, 1).replace("our_model", name).replace("[1, 2]", "[2]")
        wide = suite.replace("16}", "1024}")  # so that its values are not computed
        (project.path / "bench_configs" / f"{name}.yaml").write_text(wide)
    return project.run("--save-baseline", code=1)


@pytest.mark.slow
def test_a_step_that_needs_its_values_is_counted_with_them(shown):
    assert " 1 skipped" in shown
    assert "counted with values computed" in shown


@pytest.mark.slow
def test_a_step_that_raises_fails_with_the_line_of_the_user(shown):
    assert " 2 failed" in shown
    assert 'raises.py", line 10, in loss' in shown
    assert "worker/process.py" not in shown  # no frame of the package


@pytest.mark.slow
def test_ranks_that_would_wait_for_each_other_fail_with_both_named(shown):
    waiting = "waits.build-ddp-fp32-ws2-b4: launch 1: launch: rank 0 and rank 1"
    assert f"{waiting} would wait for each other" in shown


@pytest.mark.parametrize(
    ("workers", "how"),
    [
        pytest.param((), signal.SIGINT, id="alone"),  # SIGTERM of one process: test_plugin.py
        pytest.param(("-n", "2"), signal.SIGINT, marks=pytest.mark.slow, id="xdist"),
        pytest.param(("-n", "2"), signal.SIGTERM, marks=pytest.mark.slow, id="xdist-terminated"),
    ],
)
def test_a_session_that_is_ended_leaves_no_process(project, workers, how):
    project.model(MODEL.partition("def build")[0] + WAITING)
    process = project.start("-m", "work", *workers)
    _wait_until(lambda: (project.path / "began-0").exists())

    if how is signal.SIGINT:
        os.killpg(process.pid, how)  # as Ctrl-C in a terminal does
    else:
        process.send_signal(how)
    process.communicate(timeout=60)

    assert process.returncode != 0
    _wait_until(lambda: project.processes() == [])


def _wait_until(holds, seconds=90):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)
