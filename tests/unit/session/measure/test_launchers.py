"""Each suite of a session has the launcher that it names."""

from __future__ import annotations

import pytest

from ddp_perf.config.loading import Overrides, load_cases
from ddp_perf.core.environment import Cluster
from ddp_perf.core.launch import LaunchRequest
from ddp_perf.session.measure import machine
from ddp_perf.session.measure.machine import Launchers, make_launcher
from tests.builders import FakeLauncher, make_case


@pytest.fixture
def made(monkeypatch):
    """The names of the launchers that were made, launched with and closed, in order."""
    noted = []

    def make(name, cluster, **changes):
        launcher = FakeLauncher(lambda request: noted.append(f"{name} launches"))
        launcher.close = lambda: noted.append(f"{name} closed")
        noted.append(name)
        return launcher

    monkeypatch.setattr(machine, "make_launcher", make)
    return noted


def test_a_launcher_is_made_at_the_first_launch_of_a_case_that_names_it(made):
    of_session = Launchers(Cluster(), on_wait=print)
    for name in ("ssh", "forkserver", "ssh"):
        of_session.launch(LaunchRequest(case=make_case(launcher=name), round=0))
    of_session.close()

    assert made == [
        *("ssh", "ssh launches"),
        *("forkserver", "forkserver launches"),
        "ssh launches",
        *("ssh closed", "forkserver closed"),
    ]


@pytest.mark.parametrize(("name", "nodes"), [("forkserver", ()), ("ssh", ("a", "b"))])
def test_each_name_has_its_launcher(name, nodes):
    cluster = Cluster(hosts=("a", "b"), nodes=2)

    launcher = make_launcher(name, cluster, tier="cpu", on_wait=print)

    assert launcher.nodes(make_case()) == nodes
    launcher.close()


@pytest.mark.parametrize(
    ("line", "option", "chosen"),
    [
        ("", None, "forkserver"),
        ("launcher: ssh\n", None, "ssh"),
        ("launcher: ssh\n", "forkserver", "forkserver"),
        ("", "ssh", "ssh"),
    ],
)
def test_the_command_line_comes_before_the_suite(tmp_path, line, option, chosen):
    path = tmp_path / "one.yaml"
    path.write_text(
        "suite: one\ntier: cpu\nworkload: mlp\nworld_sizes: [2]\nbatch_sizes: [4]\n"
        f"model: {{input_dim: 4, hidden_dim: 4, output_dim: 4, num_layers: 2}}\n{line}"
    )

    (case,) = load_cases([path], Overrides(launcher=option))

    assert case.launcher == chosen
    assert "launcher" not in case.work()  # the work of a step is the same
