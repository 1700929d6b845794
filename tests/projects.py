"""A project in pytester's directory: the suite's own tests, and suite files to measure."""

from __future__ import annotations

import shutil
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]

TINY = """
suite: tiny
tier: cpu
workload: mlp
model: {input_dim: 64, hidden_dim: 64, output_dim: 8}
world_sizes: [1, 2]
batch_sizes: [16]
steps: 8
warmup: 2
launches: 2
"""


INI = """
[pytest]
addopts = -p ddp_perf.plugin --import-mode=importlib {addopts}
{more}filterwarnings =
    error
    ignore::pytest.PytestAssertRewriteWarning
"""


def make_bare_project(pytester, monkeypatch, *, addopts="", more=""):
    """Put the suite's own tests into pytester's directory. ``more``: further lines of the ini."""
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)  # the inner run is no worker
    for name in ("CI", "BUILD_NUMBER"):  # pytest would show each reason whole in its summary again
        monkeypatch.delenv(name, raising=False)
    shutil.copytree(REPOSITORY / "tests" / "perf", pytester.path / "tests")
    pytester.makeini(INI.format(addopts=addopts, more=more))


def make_project(pytester, monkeypatch, *, addopts="", **suites):
    """``suites``: text of each file of bench_configs/, by its name without .yaml."""
    more = "junit_family = xunit1\npythonpath = .\n"
    make_bare_project(pytester, monkeypatch, addopts=addopts, more=more)
    for name in ("bench_configs", "baselines"):
        (pytester.path / name).mkdir()
    for name, text in suites.items():
        (pytester.path / "bench_configs" / f"{name}.yaml").write_text(text)
    return pytester
