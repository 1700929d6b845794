"""The export as Apache Otava, asv and OpenTelemetry read it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from ddp_perf.cli.app import app
from ddp_perf.history.store import HistoryStore
from tests.builders import make_case
from tests.recorded_sessions import make_recorded_session, stepped

PYTHON = os.environ.get("DDP_OTAVA_PYTHON", "")
CASE = make_case()
STEP = 20  # the first slower session of 40, by a tenth
_READ = """
import sys
from google.protobuf.json_format import Parse
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData
for line in open(sys.argv[1], encoding="utf-8"):
    (resource,) = Parse(line, MetricsData()).resource_metrics
    for metric in resource.scope_metrics[0].metrics:
        for point in metric.gauge.data_points:
            print(metric.name, point.time_unix_nano, point.as_double)
"""

pytestmark = pytest.mark.skipif(
    not PYTHON,
    reason="Otava pins an old numpy: pip install apache-otava asv opentelemetry-proto in a virtual"
    " environment of its own, and name its interpreter in DDP_OTAVA_PYTHON",
)


def run(*command, cwd=None, environ=None):
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, **(environ or {})},
    )
    assert done.returncode == 0, done.stderr or done.stdout
    return done.stdout


@pytest.fixture
def commits(tmp_path, monkeypatch):
    """The commits of a repository, one for each session of its history."""
    monkeypatch.chdir(tmp_path)
    git = ("git", "-c", "user.name=A", "-c", "user.email=a@example.org")
    run(*git, "init", "-q", "-b", "main")
    commits = []
    store = HistoryStore("sqlite:///artifacts/history.sqlite")
    for number, step_s in enumerate(stepped(at=STEP, ratio=1.1)):
        day = {"GIT_COMMITTER_DATE": f"2026-01-01T00:{number:02}:00Z"}
        run(*git, "commit", "-q", "--allow-empty", "-m", number, environ=day)
        commits.append(run(*git, "rev-parse", "HEAD").strip())
        store.append([make_recorded_session(CASE, number, step_s, commit=commits[-1][:12])])
    store.close()
    return commits


def export(name):
    with pytest.raises(SystemExit) as ended:
        app(["export", name, "--out", "out"])
    assert not ended.value.code
    return Path("out")


def test_otava_finds_the_change_in_the_exported_history(commits):
    out = export("otava")

    analyze = (PYTHON, "-m", "otava.main", "analyze", "ddp-perf", "--config-file", "otava.yaml")
    shown = run(*analyze, "--since", "2026-01-01", "--output", "json", cwd=out)

    ((name, (point,)),) = json.loads(shown).items()
    assert name.endswith(f"quick/{CASE.id}/step_time")
    assert point["attributes"]["commit"] == commits[STEP][:12]
    (change,) = point["changes"]
    assert float(change["forward_change_percent"]) == pytest.approx(10, abs=0.5)


def test_asv_publishes_the_exported_history_and_finds_the_change(commits, tmp_path):
    out = export("asv")

    run(PYTHON, "-m", "asv", "publish", cwd=out, environ={"HOME": str(tmp_path)})

    index = json.loads((out / "html" / "index.json").read_text("utf-8"))
    assert [*index["revision_to_hash"].values()] == commits
    regressions = json.loads((out / "html" / "regressions.json").read_text("utf-8"))
    ((name, *_, now, best, jumps),) = regressions["regressions"]
    assert name == f"quick.step_time({CASE.id})"
    assert now / best == pytest.approx(1.1, abs=0.005)
    assert [after for _, after, _, _ in jumps] == [STEP]


def test_opentelemetry_reads_the_exported_history_with_its_times(commits):
    out = export("otlp")

    points = [line.split() for line in run(PYTHON, "-c", _READ, out).splitlines()]

    steps = [(int(time), float(value)) for name, time, value in points if "step_time" in name]
    assert [value for _, value in steps] == stepped(at=STEP, ratio=1.1)
    day = 86_400 * 10**9
    assert [time - steps[0][0] for time, _ in steps] == [day * n for n in range(len(commits))]
