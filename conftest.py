"""Load the plugin as any project does, and keep -m from importing what it does not select."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from _pytest.mark import _parse_expression  # pytest has no public one

pytest_plugins = ["ddp_perf.plugin", "pytester"]

TESTS = Path(__file__).parent / "tests"
collect_ignore = ["ddp_perf"]  # the example project in it is for users
SELECTING = {"perf", "work", "cpu", "gpu"}
# Which of the selecting markers the tests of a directory have together. Those of others: none.
MARKERS = {
    "perf": [{"perf", "cpu"}, {"perf", "gpu"}],
    "work": [{"work"}],
    "correctness": [set(), {"gpu"}],
}


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no test of a directory where -m selects none; pytest asks only about directories
    that the command line does not name.
    """
    if collection_path.parent != TESTS or not config.option.markexpr:
        return None
    markers = MARKERS.get(collection_path.name, [set()])
    return None if any(_selects(config.option.markexpr, one) for one in markers) else True


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    for item in items:
        found = {marker.name for marker in item.iter_markers()} & SELECTING
        directory = item.path.relative_to(TESTS).parts[0]
        if found not in MARKERS.get(directory, [set()]):
            raise pytest.UsageError(
                f"{item.nodeid}: has the markers {sorted(found)}, which MARKERS of conftest.py must"
                " state"
            )


def _selects(expression: str, markers: set[str]) -> bool:
    """Return whether -m may select a test with these, and no other, of the selecting markers."""

    def has(name: str, **_: object) -> bool:
        if name not in SELECTING:
            raise LookupError(name)
        return name in markers

    try:
        return _parse_expression(expression, "Wrong expression passed to '-m'").evaluate(has)
    except LookupError:  # it depends on a marker that any test may have
        return True
