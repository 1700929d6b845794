"""The names of `ddp_perf.stats` that other code relies on."""

import subprocess
import sys

import pytest

import ddp_perf.stats
from ddp_perf.core import verdict
from ddp_perf.stats import level
from ddp_perf.stats.rule import judge


def test_stats_exports_judge_launches_launch_level_and_verdict():
    assert ddp_perf.stats.judge_launches is judge.judge_launches
    assert ddp_perf.stats.launch_level is level.launch_level
    assert ddp_perf.stats.Verdict is verdict.Verdict
    assert set(ddp_perf.stats.__all__) == {
        "JudgeOptions",
        "judge_launches",
        "launch_level",
        "Verdict",
    }


def test_stats_has_no_other_lazy_name():
    with pytest.raises(AttributeError, match="has no attribute 'judge_launch'"):
        _ = ddp_perf.stats.judge_launch  # type: ignore[attr-defined]


def test_importing_stats_imports_neither_torch_nor_numpy():
    modules = "ddp_perf.stats, ddp_perf.stats.robust, ddp_perf.stats.hardware"
    script = (
        f"import sys, {modules}; sys.exit(sorted({{'torch', 'numpy'}} & {{*sys.modules}}) or 0)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_the_level_of_a_launch_needs_neither_torch_nor_numpy():
    script = (
        "import sys; from ddp_perf.stats import launch_level; assert launch_level([0.5]) == 0.5;"
        " sys.exit(sorted({'torch', 'numpy'} & {*sys.modules}) or 0)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
