"""The tests that ``ddp-perf init`` writes are those of this repository."""

from pathlib import Path

import ddp_perf.cli

ROOT = Path(__file__).parents[3]


def test_a_project_gets_the_performance_tests_of_this_repository():
    written = Path(ddp_perf.cli.__file__).parent / "example_project" / "tests" / "test_perf.py"

    assert written.read_text("utf-8") == (ROOT / "tests/perf/test_perf.py").read_text("utf-8")
