"""The log of a search over versions: launches of other versions or sources are not mixed."""

from __future__ import annotations

import contextlib

import pytest

from ddp_perf.duel.bisect.commits import Commit, CommitLine
from ddp_perf.duel.bisect.search import open_commit_log
from tests.builders import make_environment, make_logged

LAUNCH = make_logged("1", step_time=0.01)


@pytest.fixture
def version_log(tmp_path, monkeypatch):
    """``version_log("2.12.0", …)`` opens the log of a search over these versions."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "model.py").write_text("one = 1\n")

    def open_it(*names):
        commits = tuple(Commit(hash=f"torch=={name}", name=name) for name in names)
        line = CommitLine(what="version", repository=str(tmp_path), commits=commits)
        return contextlib.closing(open_commit_log(line, "mlp", make_environment()))

    return open_it


def test_launches_of_another_list_of_versions_are_not_mixed(version_log):
    with version_log("2.12.0", "2.13.0") as log:
        log.append(LAUNCH)
    with version_log("2.12.0", "2.13.0") as log:
        assert log.entries == [LAUNCH]

    with version_log("2.12.0", "2.12.1", "2.13.0") as log:  # the index has one more
        assert log.entries == []


def test_launches_of_an_edited_tree_are_not_mixed_with_others(version_log, tmp_path):
    with version_log("2.12.0", "2.13.0") as log:
        log.append(LAUNCH)
    (tmp_path / "model.py").write_text("one = 1 + 0\n")

    with version_log("2.12.0", "2.13.0") as log:
        assert log.entries == []
