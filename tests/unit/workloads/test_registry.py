"""A workload is found by its name: one module is imported, and its return value is checked."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from ddp_perf.errors import ConfigError
from ddp_perf.workloads.workload import BuildContext, build_workload


def test_a_workload_imports_no_other_and_none_of_their_packages():
    script = """
import sys
from ddp_perf.workloads.workload import find_builder
find_builder("gpt")
others = ("transformers", *(f"ddp_perf.workloads.{n}" for n in ("mlp", "distilbert", "resnet50")))
print(*(name for name in others if name in sys.modules))
"""
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)

    assert (result.returncode, result.stdout) == (0, b"\n")


def test_a_function_that_does_not_return_a_workload_is_named(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "returns_none.py").write_text("def build(context): ...")
    context = BuildContext(device=torch.device("cpu"), batch_size=1, rank=0, world_size=1)

    with pytest.raises(ConfigError, match="returns_none:build returned NoneType, not a Workload; "):
        build_workload("returns_none:build", context, {})
