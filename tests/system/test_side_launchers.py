"""Launchers of sides: another package, another interpreter, a user's command."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import sys
from importlib import metadata
from pathlib import Path

import msgspec
import pytest

from ddp_perf.core.launch import LaunchFailure, LaunchRequest, LaunchResult, Profiling
from ddp_perf.core.work import CountRequest, StepWork
from ddp_perf.duel.open_sides import side_launcher
from ddp_perf.duel.values import PreparedSide, Side
from ddp_perf.errors import LaunchError
from ddp_perf.launch.engines.machine import ThisMachine, UserCommand
from ddp_perf.launch.interpreter import RANK_PACKAGES, package_directory
from ddp_perf.launch.server_launcher import ServerLauncher
from tests.builders import make_request
from tests.packages import copied_package
from tests.unit.duel.script_cases import make_script_case

HERE = Path(__file__).parent
MLP = {"input_dim": 16, "hidden_dim": 32, "output_dim": 8, "num_layers": 2}
TRAIN = """
import torch

model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
while True:
    optimizer.zero_grad()
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
"""
PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"


def script(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def counted(launcher, request):
    return launcher.count(CountRequest(case=request.case, import_paths=request.import_paths))


@pytest.mark.slow
def test_another_interpreter_imports_the_package_of_its_side_and_nothing_else_there(tmp_path):
    """The working directory of this test has a ddp_perf, too, and comes first on a path."""
    package = copied_package(
        tmp_path,
        "workloads/mlp.py",
        "[hidden_dim] * (num_layers - 1)",
        "[2 * hidden_dim] * (num_layers - 1)",
    )
    (package / "torch.py").write_text("raise ImportError('the torch of another interpreter')\n")
    interpreter = script(tmp_path / "python", f'exec {sys.executable} "$@"')
    request = make_request("mlp", model=MLP, world_sizes=[1])

    launcher = ServerLauncher(ThisMachine(interpreter=interpreter, package=package))
    with contextlib.closing(launcher):
        outcome = launcher.launch(request)

    assert isinstance(outcome, LaunchResult), str(outcome)
    assert outcome.ranks[0].structure.parameters == (16 + 1) * 64 + (64 + 1) * 8


@pytest.mark.slow
def test_ranks_import_nothing_from_the_working_directory(tmp_path, monkeypatch):
    """It is the user's tree, and the side may be a revision that lacks a module."""
    (tmp_path / "helper.py").touch()
    (tmp_path / "revision").mkdir()
    (tmp_path / "revision" / "broken.py").write_text("import helper\n")
    monkeypatch.chdir(tmp_path)

    with contextlib.closing(ServerLauncher()) as launcher:
        outcome = launcher.launch(make_request("broken:build", tmp_path / "revision"))

    assert "No module named 'helper'" in str(outcome)


@pytest.mark.slow
def test_ranks_run_in_the_directory_of_their_side(tmp_path):
    (tmp_path / "words.txt").write_text("8")
    (tmp_path / "reading.py").write_text("SIZE = open('words.txt').read()\nraise OSError(SIZE)\n")
    side = Side(name="A", spec="main", kind="revision", label="main")
    for command in (None, f"env PATH={PATH} {{command}}"):
        prepared = PreparedSide(
            side=side,
            root=tmp_path,
            interpreter=sys.executable,
            environ=dict(os.environ),
            package=package_directory(),
            command=command,
        )
        with contextlib.closing(side_launcher(prepared)) as launcher:
            outcome = launcher.launch(make_request("reading:build", tmp_path))

        assert "OSError: 8" in str(outcome)


def _required(name, found):
    """Add a distribution and those that it requires, without extras, to ``found``."""
    name = re.sub(r"[-_.]+", "-", name).lower()
    if name in found:
        return
    with contextlib.suppress(metadata.PackageNotFoundError):
        found[name] = metadata.distribution(name)
        for line in found[name].requires or ():
            if "extra ==" not in line:
                _required(re.match(r"[\w.-]+", line)[0], found)


@pytest.mark.slow
def test_server_rank_and_count_import_only_what_is_listed(tmp_path):
    found = {}
    _required("torch", found)
    modules = {
        module
        for module, names in metadata.packages_distributions().items()
        if {re.sub(r"[-_.]+", "-", name).lower() for name in names} & found.keys()
    }
    allowed = {"ddp_perf", *RANK_PACKAGES, *modules, "importing"}
    environ = {
        **os.environ,
        "PYTHONPATH": str(HERE / "refusing"),
        "RANK_MODULES": " ".join(allowed),
    }
    request = make_request("mlp", model=MLP)

    with contextlib.closing(ServerLauncher(ThisMachine(environ=environ))) as launcher:
        outcome, work = launcher.launch(request), counted(launcher, request)
        refused = launcher.launch(make_request("importing:build", HERE / "workloads"))
        (tmp_path / "train.py").write_text(TRAIN, encoding="utf-8")
        case = make_script_case(steps=8, warmup=2)
        scripted = launcher.launch(
            LaunchRequest(case=case, round=0, import_paths=(str(tmp_path),), probe_steps=4)
        )

    assert isinstance(outcome, LaunchResult), str(outcome)
    assert isinstance(scripted, LaunchResult), str(scripted)
    assert isinstance(work, StepWork), str(work)
    assert "No module named 'scipy'" in str(refused)


@pytest.fixture(scope="module")
def wrapped(tmp_path_factory):
    """A command that sets a variable, prints a banner, and runs the ranks in another directory."""
    wrapper = script(
        tmp_path_factory.mktemp("command") / "wrapper",
        'COLOUR=green; export COLOUR\ncd /\necho "== a banner =="\nprintf "no end of line "\n"$@"',
    )
    environ = {**os.environ, "PATH": PATH}
    with contextlib.closing(
        ServerLauncher(UserCommand(f"{wrapper} {{command}}", environ=environ))
    ) as launcher:
        yield launcher


@pytest.fixture
def coloured(request_of):
    return lambda **model: request_of("coloured:build", model, world_sizes=[1], step_deadline_s=5)


def test_a_command_launches_and_counts_as_this_machine_does(wrapped, launcher, coloured, tmp_path):
    request = msgspec.structs.replace(
        coloured(),
        output=str(tmp_path / "output"),
        profiling=Profiling(steps=1, directory=str(tmp_path / "traces")),
    )

    outcome, forked = wrapped.launch(request), launcher.launch(coloured())

    assert isinstance(outcome, LaunchResult), str(outcome)
    assert outcome.ranks[0].structure == forked.ranks[0].structure
    # A busy machine adds steps, and then there are later losses, too.
    assert outcome.ranks[0].losses["8"] == forked.ranks[0].losses["8"]
    assert outcome.output.directory == str(tmp_path / "output")
    assert (tmp_path / "output" / "rank0.out").read_text().startswith("colour: green\n")
    assert (tmp_path / "traces" / "rank0.json.gz").stat().st_size
    assert counted(wrapped, request) == counted(launcher, request)
    assert wrapped.runtime() == launcher.runtime()


@pytest.mark.slow
def test_a_failure_in_a_rank_is_described_as_ever(wrapped, request_of):
    failure = wrapped.launch(request_of("faulty:build", {"fault": "raise"}))

    assert isinstance(failure, LaunchFailure)
    assert (failure.kind, failure.rank) == ("exception", 1)
    assert "the data are broken" in failure.detail


@pytest.mark.slow
def test_a_server_that_is_killed_or_stopped_is_replaced(wrapped, coloured):
    killed, stopped = (
        wrapped.launch(coloured(sent="SIGKILL")),
        wrapped.launch(coloured(sent="SIGSTOP")),
    )

    for failure, why in (
        (killed, "ended (exit code 137), and its ranks with it"),
        (stopped, "gave no sign of life for 5 s; its command was killed"),
    ):
        assert isinstance(failure, LaunchFailure)
        assert failure.kind == "server"
        assert failure.detail.startswith("the command of the side (")
        assert why in failure.detail


def test_an_error_of_the_machinery_in_a_command_is_one_here(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['torch'] = None\n")
    command = f"env -i PATH={PATH} PYTHONPATH={tmp_path}:{HERE.parents[1]} {{command}}"

    with (
        contextlib.closing(ServerLauncher(UserCommand(command))) as launcher,
        pytest.raises(LaunchError, match=r"did not start: .*torch"),
    ):
        launcher.runtime()


@pytest.mark.slow
def test_a_case_that_sets_pythonpath_keeps_the_package(wrapped, launcher, request_of, tmp_path):
    request = request_of(
        "coloured:build", {}, world_sizes=[1], env={"PYTHONPATH": "/no/such/directory"}
    )

    for each in (wrapped, launcher):
        outcome = each.launch(msgspec.structs.replace(request, output=str(tmp_path)))
        assert isinstance(outcome, LaunchResult), str(outcome)
        path = (tmp_path / "rank0.out").read_text().splitlines()[1].removeprefix("path: ")
        package, rest = path.split(":")
        assert Path(package, "ddp_perf").is_dir()
        assert rest == "/no/such/directory"


@pytest.mark.slow
def test_a_server_in_a_command_ends_at_sigterm_and_is_replaced(tmp_path):
    """As docker stop, scancel or a node that drains end it."""
    environ = {**os.environ, "PATH": PATH, "TMPDIR": str(tmp_path)}
    command = "sh -c 'echo $$ >$TMPDIR/pid; exec {command}'"
    with contextlib.closing(ServerLauncher(UserCommand(command, environ=environ))) as launcher:
        launcher.runtime()
        pid = int((tmp_path / "pid").read_text())
        assert list(tmp_path.glob("ddp-perf-*"))
        descriptor = os.pidfd_open(pid)

        os.kill(pid, signal.SIGTERM)

        assert select.select([descriptor], [], [], 60)[0]
        os.close(descriptor)
        assert not list(tmp_path.glob("ddp-perf-*"))
        assert launcher.runtime().torch
