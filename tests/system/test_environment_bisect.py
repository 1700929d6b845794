"""Two real environments that differ in three packages and two variables: one is to blame."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
import typer

from ddp_perf.cli.bisect import bisect_environments
from ddp_perf.errors import SideError
from tests.unit.duel.environments.environments import install

WORKLOAD = """
import torch
from ddp_perf.workloads.workload import BuildContext, Workload
from pacing import pace


def build(context: BuildContext) -> Workload:
    model = torch.nn.Linear(8, 8)

    def loss(module, batch):
        pace()
        return module(batch[0]).square().mean()

    return Workload(
        model=model,
        batch=(torch.randn(context.batch_size, 8),),
        loss=loss,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=1e-4),
    )
"""
SUITE = """
suite: paced
tier: cpu
workload: paced:build
world_sizes: [1]
batch_sizes: [4]
steps: 12
warmup: 2
launches: 3
tolerances: {step_time: 0.6}
"""
PACE = "def pace():\n    return sum(range({:_}))\n"


def make_environment(path: Path, version: str, rounds: int) -> Path:
    """A virtual environment made without network, which finds torch where this one does."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", path], check=True)
    (site,) = path.glob("lib/python*/site-packages")
    (site / "shared.pth").write_text(sysconfig.get_path("purelib") + "\n")
    install(site, "pacing", "1.0", PACE.format(rounds))
    install(site, "alpha", version, "")
    install(site, "beta", version, "", requires=[f"alpha>={version}"])
    return path / "bin" / "python"


@pytest.fixture
def project(tmp_path, monkeypatch):
    (tmp_path / "project" / "bench_configs").mkdir(parents=True)
    (tmp_path / "project" / "paced.py").write_text(WORKLOAD)
    (tmp_path / "project" / "bench_configs" / "paced.yaml").write_text(SUITE)
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


@pytest.mark.slow
def test_a_patched_package_is_found_among_five_differences(project, capfd):
    good = make_environment(project / "a", "1.0", rounds=60_000)
    bad = make_environment(project / "b", "2.0", rounds=400_000)
    arguments = (
        f"python:{good} env:PACE_MODE=old",
        f"python:{bad} env:PACE_MODE=new,PACE_LEVEL=3",
        "paced.build-none-fp32-ws1-b4",
    )

    with pytest.raises(typer.Exit) as ended:
        bisect_environments(*arguments, budget_s=600.0, as_json=False)

    text = " ".join(capfd.readouterr().out.split())
    assert ended.value.exit_code == 0, text
    assert "To blame: pacing 1.0 (other files): +" in text
    assert "The rest has no effect above 60 %" in text
    with pytest.raises(typer.Exit):  # goes on from what was measured, which is everything
        bisect_environments(*arguments, budget_s=0.001, as_json=False)
    assert "To blame: pacing 1.0" in capfd.readouterr().out


@pytest.mark.slow
def test_environments_that_are_the_same_are_refused(project):
    good = make_environment(project / "a", "1.0", rounds=1)

    with pytest.raises(SideError, match="have the same packages and variables"):
        bisect_environments(
            f"python:{good}",
            f"python:{good}",
            "paced.build-none-fp32-ws1-b4",
            budget_s=1.0,
            as_json=False,
        )
