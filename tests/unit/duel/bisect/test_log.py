"""The log of a search over versions: launches of other versions or sources are not mixed."""

from __future__ import annotations

import contextlib

import pytest

from ddp_perf.duel.bisect import search as bisect_log
from ddp_perf.duel.bisect.commits import Commit, CommitLine
from ddp_perf.duel.bisect.search import CommitLaunch
from tests.builders import make_environment

LAUNCHES = [
    CommitLaunch(
        place=place,
        block=place,
        started="2026-01-02T03:04:05+00:00",
        wall_s=1.0,
        values={"step_time": 0.01} if place else {},
        failure=None if place else "no module",
    )
    for place in range(3)
]


@pytest.fixture
def version_log(tmp_path, monkeypatch):
    """``version_log("2.12.0", …)`` opens the log of a search over these versions."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "model.py").write_text("one = 1\n")

    def open_it(*names):
        commits = tuple(Commit(hash=f"torch=={name}", name=name) for name in names)
        line = CommitLine(what="version", repository=str(tmp_path), commits=commits)
        return contextlib.closing(bisect_log.open_log(line, "mlp", make_environment()))

    return open_it


def test_launches_of_another_list_of_versions_are_not_mixed(version_log):
    with version_log("2.12.0", "2.13.0") as log:
        log.append(LAUNCHES[1])
    with version_log("2.12.0", "2.13.0") as log:
        assert log.entries == [LAUNCHES[1]]

    with version_log("2.12.0", "2.12.1", "2.13.0") as log:  # the index has one more
        assert log.entries == []


def test_launches_of_an_edited_tree_are_not_mixed_with_others(version_log, tmp_path):
    with version_log("2.12.0", "2.13.0") as log:
        log.append(LAUNCHES[1])
    (tmp_path / "model.py").write_text("one = 1 + 0\n")

    with version_log("2.12.0", "2.13.0") as log:
        assert log.entries == []
