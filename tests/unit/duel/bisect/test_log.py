"""The log of a search: no launch is lost, and launches of other conditions are not mixed."""

from __future__ import annotations

import contextlib

import pytest

from ddp_perf.duel.bisect import search as bisect_log
from ddp_perf.duel.bisect.commits import Commit, CommitLine
from ddp_perf.duel.bisect.search import BisectLog, CommitLaunch
from ddp_perf.errors import ResultsError
from tests.builders import make_environment

QUESTION = {"repository": "/r", "good": "a", "bad": "b", "case": "mlp"}
HERE = {"host": "one", "torch": "2.13.0", "cuda": None}
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


def open_log(directory, question=QUESTION, conditions=HERE):
    return contextlib.closing(BisectLog(directory, question, conditions))


@pytest.fixture
def written(tmp_path):
    with open_log(tmp_path) as log:
        for count, launch in enumerate(LAUNCHES, start=1):
            log.append(launch)
            assert len(log.path.read_bytes().splitlines()) == 1 + count  # on disk at once
    return log.path


def test_the_same_question_goes_on(tmp_path, written):
    with open_log(tmp_path) as log:
        assert (log.path, log.launches, log.changed) == (written, LAUNCHES, [])


@pytest.mark.parametrize("cut", [1, 20, 60])
def test_an_incomplete_last_line_is_dropped_and_the_file_continues(tmp_path, written, cut):
    written.write_bytes(written.read_bytes()[:-cut])

    with open_log(tmp_path) as log:
        assert log.launches == LAUNCHES[:2]
        log.append(LAUNCHES[2])
    with open_log(tmp_path) as log:
        assert log.launches == LAUNCHES


@pytest.mark.parametrize("left", [0, 10])
def test_a_file_with_an_incomplete_first_line_is_begun_again(tmp_path, written, left):
    written.write_bytes(written.read_bytes()[:left])

    with open_log(tmp_path) as log:
        assert log.launches == []


def test_changed_conditions_begin_anew_say_so_and_keep_the_launches(tmp_path, written):
    with open_log(tmp_path, conditions={**HERE, "torch": "2.14.0"}) as log:
        assert log.launches == []
        assert log.changed == ["torch 2.13.0 → 2.14.0"]
    with open_log(tmp_path) as log:
        assert log.launches == LAUNCHES


@pytest.mark.parametrize("name", ["repository", "good", "bad", "case"])
def test_another_question_has_a_log_of_its_own(tmp_path, written, name):
    with open_log(tmp_path, {**QUESTION, name: "other"}) as log:
        assert (log.launches, log.changed) == ([], [])


def test_a_broken_line_is_refused_by_number(tmp_path, written):
    lines = written.read_bytes().splitlines(keepends=True)
    written.write_bytes(b"".join([*lines[:2], b'{"place":0\n', *lines[3:]]))

    with pytest.raises(ResultsError, match=r"line 3: .*delete the file"):
        open_log(tmp_path)


def test_another_version_is_refused(tmp_path, written):
    text = written.read_text().replace('"schema_version":1', '"schema_version":2')
    written.write_text(text)

    with pytest.raises(ResultsError, match="this ddp-perf reads 1"):
        open_log(tmp_path)


def test_a_directory_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").write_text("")

    with pytest.raises(ResultsError, match="cannot be written"):
        open_log(tmp_path / "file")


@pytest.mark.parametrize("content", [b"", b'{"schema_version": 99}\n'])
def test_an_unreadable_file_of_other_conditions_does_not_matter(tmp_path, written, content):
    written.write_bytes(content)

    with open_log(tmp_path, conditions={**HERE, "torch": "2.14.0"}) as log:
        assert (log.launches, log.changed) == ([], [])


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
        assert log.launches == [LAUNCHES[1]]

    with version_log("2.12.0", "2.12.1", "2.13.0") as log:  # the index has one more
        assert log.launches == []


def test_launches_of_an_edited_tree_are_not_mixed_with_others(version_log, tmp_path):
    with version_log("2.12.0", "2.13.0") as log:
        log.append(LAUNCHES[1])
    (tmp_path / "model.py").write_text("one = 1 + 0\n")

    with version_log("2.12.0", "2.13.0") as log:
        assert log.launches == []
