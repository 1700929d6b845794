"""The command that measures a case again has the options that made the case, and no other."""

from __future__ import annotations

import shlex
from pathlib import Path
from types import SimpleNamespace

import pytest

from ddp_perf.core.injection import parse_injection
from ddp_perf.plugin.items import WORK, commands, counting_command, session_command
from tests.builders import make_case

CASE = make_case()


def config(**given):
    options = {name: given.get(name.removeprefix("--ddp-").replace("-", "_")) for name in WORK}
    invocation = SimpleNamespace(dir=Path())
    ini = {"addopts": [], "ddp_configs": given.get("configs", "bench_configs")}
    return SimpleNamespace(
        getoption=options.__getitem__, getini=ini.get, invocation_params=invocation
    )


def item(node, metric, case=CASE):
    marker = metric and SimpleNamespace(args=(metric,))
    return SimpleNamespace(
        nodeid=node,
        path=Path(node.partition("::")[0]),
        callspec=SimpleNamespace(params={"ddp_case": case}),
        get_closest_marker=lambda name: marker,
    )


def command(items, **given):
    return commands(config(**given), items)[CASE.suite, CASE.id]


@pytest.fixture(autouse=True)
def no_data(monkeypatch):
    monkeypatch.delenv("DDP_PERF_DATA", raising=False)
    monkeypatch.delenv("DDP_PERF_COMMAND", raising=False)


def test_the_command_runs_the_step_time_test_of_a_case():
    items = [item("a.py::b[x]", None), item("c.py::d[x]", "step_time"), item("e.py::f[x]", "tail")]

    assert command(items) == "pytest -m perf 'c.py::d[x]'"
    assert command(items[:1]) == "pytest -m perf 'a.py::b[x]'"


def test_the_command_names_the_plugin_where_nothing_else_does():
    items = [item("a.py::b", None)]

    assert command(items, configs=None) == "pytest -m perf a.py::b -p ddp_perf.plugin"
    steps = {"configs": None, "steps": 9}
    assert command(items, **steps) == "pytest -m perf a.py::b --ddp-steps=9"


def test_the_command_measures_each_node_only_if_that_was_asked_for():
    items = [item("a.py::b", None)]

    assert command(items, cluster="c.yaml") == "pytest -m perf a.py::b --ddp-cluster=c.yaml"
    assert command(items, each_node=False) == "pytest -m perf a.py::b"


def test_the_command_has_every_option_that_made_the_case_quoted_for_a_shell():
    written = command(
        [item("a.py::b", None)],
        config=[Path("my suite.yaml"), Path("b.yaml")],
        world_sizes=(1, 2),
        steps=9,
        env=[("NCCL_ALGO", "Ring"), ("A", "$b")],
        inject=[parse_injection("compute:5%")],
    )

    assert shlex.split(written)[4:] == [
        *("--ddp-config=my suite.yaml", "--ddp-config=b.yaml", "--ddp-world-sizes=1,2"),
        *("--ddp-steps=9", "--ddp-env=NCCL_ALGO=Ring", "--ddp-env=A=$b", "--ddp-inject=compute:5%"),
    ]


def test_the_command_begins_with_the_folder_of_real_data(monkeypatch):
    monkeypatch.setenv("DDP_PERF_DATA", "/my data")

    assert command([item("a.py::b", None)]) == "DDP_PERF_DATA='/my data' pytest -m perf a.py::b"


def test_a_test_without_a_case_has_no_command():
    assert commands(config(), [SimpleNamespace(nodeid="a.py::b")]) == {}


def again(*arguments):
    return session_command(SimpleNamespace(invocation_params=SimpleNamespace(args=arguments)))


@pytest.mark.parametrize(
    "once",
    [
        ("--save-baseline=accept", "--ddp-reason", "larger buckets"),
        ("--save-baseline", "accept", "--ddp-reason=larger buckets"),
        ("--ddp-inject", "compute:5%", "--ddp-inject=data:5ms"),
        ("--ddp-notify", "https://host/secret", "--ddp-notify=env:NAME"),
    ],
)
def test_the_command_of_a_session_is_as_it_was_given_without_what_belongs_to_it_alone(once):
    kept = ["-m", "perf and cpu", "--save-baseline=append", "tests/perf", "--ddp-launches=3"]

    assert shlex.split(again(*kept[:2], *once, *kept[2:])) == ["pytest", *kept]


def test_a_path_follows_its_option_and_an_equals_sign_where_pytest_does_not_mistake_it():
    given = ("--ddp-config", "b.yaml", "--ddp-json", "/my data/x.json", "--ddp-report", "/r")

    assert shlex.split(again(*given, "--ddp-steps", "9", "--ddp-config=c.yaml")) == [
        *("pytest", "--ddp-config=b.yaml", "--ddp-json=/my data/x.json", "--ddp-report=/r"),
        *("--ddp-steps", "9", "--ddp-config=c.yaml"),
    ]


@pytest.mark.parametrize("marks", ["work", "perf or work"])
def test_the_command_that_counts_again_has_no_duel(marks):
    kept = ["tests/work", "-n", "2", "--ddp-config=b.yaml"]
    duel = ["--ddp-against", "HEAD~1", "--ddp-touched", "--ddp-budget=60s"]
    config = SimpleNamespace(
        invocation_params=SimpleNamespace(args=["-m", marks, *duel, *kept]),
        getoption={"ddp_against": "HEAD~1"}.__getitem__,
    )

    assert counting_command(config) == shlex.join(["pytest", *kept, "-m", "work"])


@pytest.mark.parametrize("by_script", [False, True])
def test_a_command_has_no_password(by_script, monkeypatch):
    url = "postgresql://me:{0}@host/db?sslmode=require&password={0}"
    given = ["-m", "perf and cpu", f"--ddp-history={url.format('s3@cret')}"]
    if by_script:
        monkeypatch.setenv("DDP_PERF_COMMAND", shlex.join(["./ci/bench", *given]))

    command = again(*given)

    assert "cret" not in command
    assert shlex.split(command)[-1] == f"--ddp-history={url.format('***')}"


def test_a_script_that_runs_pytest_gives_its_own_command(monkeypatch):
    monkeypatch.setenv("DDP_PERF_COMMAND", "./ci/bench --ddp-steps 50 -k 'a b' --save-baseline")

    assert again("tests/perf") == "./ci/bench --ddp-steps 50 -k 'a b' --save-baseline"
    assert command([item("a.py::b", None)]).startswith(".venv/bin/pytest -m perf")


def test_from_a_subdirectory_the_command_of_a_case_runs_there(project, monkeypatch):
    monkeypatch.chdir(project.path / "tests")
    suite = "../bench_configs/tiny.yaml"
    given = ("test_perf.py", "--ddp-config", suite, "--save-baseline=append")

    result = project.results(f"--ddp-json={project.path / 'results.json'}", *given)["tiny"]

    for command in (result.command, *result.commands.values()):
        program, *arguments = shlex.split(command)
        assert program == "pytest"
        again = project.run("--collect-only", "-q", *arguments)
        assert again.ret == pytest.ExitCode.OK, command
