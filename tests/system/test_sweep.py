"""A sweep of real launches: two ranks, one other size of buckets."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from ddp_perf.cli.app import app
from tests.projects import TINY


@pytest.mark.slow
def test_a_setting_is_launched_beside_the_suites_own(tmp_path, monkeypatch):
    (tmp_path / "bench_configs").mkdir()
    (tmp_path / "bench_configs" / "tiny.yaml").write_text(TINY)
    monkeypatch.chdir(tmp_path)

    done = CliRunner().invoke(
        app, ["sweep", "mlp-ddp-fp32-ws2-b16", "bucket_cap_mb=1", "--budget", "4s"]
    )

    assert done.exit_code == 0, done.output
    (path,) = (tmp_path / "artifacts" / "sweep").glob("*.json")
    result = json.loads(path.read_text())
    (row,) = result["settings"]
    assert row["launches"] == result["base_launches"] >= 1
    assert row["step_s"] > 0
    assert result["verdict"]["pairs"] == row["launches"]
