"""A session is appended to the history, or written to a file if the history refuses it."""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile

import pytest
from sqlalchemy import select

from ddp_perf.errors import HistoryError
from ddp_perf.history import store as store_module
from ddp_perf.history.store import SESSIONS, Database, HistoryStore
from ddp_perf.plugin.outputs import HistoryLog
from ddp_perf.session.result import read_results
from tests.builders import make_case, make_measurement, make_result
from tests.databases import KINDS, empty_database, make_read_only

RESULT = make_result([make_measurement(make_case(), [0.01, 0.011])])


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/history.sqlite"


@pytest.fixture
def lock(url, tmp_path, monkeypatch):
    """``lock()`` makes another process write the history from then on."""
    monkeypatch.setattr(store_module, "PATIENCE_S", 0.01)
    HistoryStore(url).close()
    with contextlib.closing(sqlite3.connect(tmp_path / "history.sqlite")) as other:
        yield lambda: other.execute("BEGIN IMMEDIATE")


def test_each_suite_is_appended_as_soon_as_it_is_judged(url, tmp_path):
    log = HistoryLog(url, tmp_path)
    log.check()
    log.append(RESULT)

    with contextlib.closing(HistoryStore(url, create=False)) as store:
        (case,) = store.cases()
        assert len(store.series(case, "step_time").sessions) == 1
    log.close()
    assert log.error is None
    assert log.summary() == f"appended to the history {url}"


def test_without_a_url_nothing_is_appended(tmp_path):
    log = HistoryLog(None, tmp_path)
    log.check()
    log.append(RESULT)
    log.close()

    assert (log.error, log.summary()) == (None, None)
    assert list(tmp_path.iterdir()) == []


def test_results_that_the_history_refuses_are_written_to_a_file(url, tmp_path, lock):
    log = HistoryLog(url, tmp_path)
    log.check()
    lock()
    log.append(RESULT)
    log.close()

    assert log.summary() is None
    assert "another process has been writing here for long" in log.error
    kept = tmp_path / "artifacts" / "history-refused-20260102T030405.json"
    assert f"ddp-perf history import {kept} --history {url} appends them" in log.error
    assert "\n" not in log.error
    assert read_results(kept).suites == (RESULT,)


def test_results_that_can_be_written_nowhere_are_reported_as_lost(url, tmp_path, lock, monkeypatch):
    log = HistoryLog(url, tmp_path / "gone")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    lock()
    log.append(RESULT)
    log.close()

    assert "the measurements were lost, too: neither " in log.error
    assert log.error.count("(No such file or directory)") == 2


def test_a_suite_that_is_appended_later_is_not_written_to_a_file(url, tmp_path, monkeypatch):
    log = HistoryLog(url, tmp_path)

    def fail(self, sessions):
        raise HistoryError("no")

    with monkeypatch.context() as broken:
        broken.setattr(HistoryStore, "append", fail)
        log.append(RESULT)
    log.append(RESULT)
    log.close()

    assert log.error is None
    assert list(tmp_path.rglob("*.json")) == []


def test_a_history_that_cannot_be_opened_is_refused_before_anything_is_measured(tmp_path):
    (tmp_path / "history.sqlite").write_bytes(b"no database\n" * 100)

    with pytest.raises(HistoryError, match="is not a SQLite database"):
        HistoryLog(f"sqlite:///{tmp_path}/history.sqlite", tmp_path).check()


def test_a_history_that_cannot_be_written_is_refused_before_anything_is_measured(url, tmp_path):
    HistoryStore(url).close()
    make_read_only(tmp_path / "history.sqlite")

    with pytest.raises(HistoryError, match="it is read-only; make it writable"):
        HistoryLog(url, tmp_path).check()


@pytest.mark.parametrize("kind", KINDS)
def test_the_history_check_stores_nothing(kind, tmp_path):
    with empty_database(kind, tmp_path) as url:
        log = HistoryLog(url, tmp_path)
        log.check()
        log.check()
        database = Database(url, patience_s=5)
        with contextlib.closing(database), database.reading() as connection:
            assert connection.execute(select(SESSIONS)).all() == []


def test_a_history_on_a_standby_server_is_refused_before_anything_is_measured(tmp_path):
    with empty_database("postgresql", tmp_path) as url:
        HistoryStore(url).close()
        standby = f"{url}%20-cdefault_transaction_read_only%3Don"

        with pytest.raises(HistoryError, match="in a read-only transaction"):
            HistoryLog(standby, tmp_path).check()
