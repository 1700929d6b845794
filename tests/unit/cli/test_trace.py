"""``ddp-perf trace``: tables that fit, JSON with the same content, errors in one line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ddp_perf.cli.app import app
from tests.unit.traces.kineto import all_reduce, file, kernel, step

A100 = Path(__file__).parents[1] / "traces" / "recorded" / "a100_ws2.json.gz"


def run(*arguments):
    return CliRunner().invoke(app, ["trace", *map(str, arguments)], env={"COLUMNS": "80"})


@pytest.fixture
def two_ranks(tmp_path):
    paths = []
    for rank, late in enumerate((0, 30)):
        path = tmp_path / f"rank{rank}.json"
        events = (step(1, 0, 100), kernel("gemm", 0, 40), all_reduce(20 + late, 60 - late))
        path.write_text(file(*events, rank=rank))
        paths.append(path)
    return paths


def test_the_text_of_a_real_trace(file_regression):
    done = run(A100)

    assert done.exit_code == 0, done.output
    assert max(map(len, done.stdout.splitlines())) <= 80
    file_regression.check(done.stdout, extension=".txt", encoding="utf-8")


def test_ranks_are_compared(two_ranks):
    done = run(*two_ranks)

    assert "1 collective in common, started 0.030 ms apart (median)" in done.stdout
    assert "slowest rank: 1, the last in 1 of 1, 0.030 ms after the first" in done.stdout


def test_json_has_the_same_content(two_ranks):
    analysis = json.loads(run(*two_ranks, "--json").stdout)

    assert [rank["split"]["overlap"] for rank in analysis["ranks"]] == pytest.approx([1 / 3, 0])
    assert analysis["comparison"]["slowest"] == 1


@pytest.mark.parametrize(
    ("content", "says"),
    [("{", "is cut short, or is not JSON"), ('{"traceEvents": []}', "has no kernel")],
)
def test_an_error_is_one_line_that_names_the_file(tmp_path, content, says):
    path = tmp_path / "bad.json"
    path.write_text(content)

    done = run(path)

    assert done.exit_code == 4
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"ddp-perf: {path}: {says}")


def test_trace_does_not_import_torch():
    code = (
        "import sys; from pathlib import Path;"
        "from ddp_perf.traces.analysis import analyse_traces;"
        f"analyse_traces([Path({str(A100)!r})]); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
