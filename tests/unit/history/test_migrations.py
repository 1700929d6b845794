"""Older tables are upgraded once, newer ones are refused, those of other programs are kept."""

from __future__ import annotations

import contextlib

import pytest
import sqlalchemy
from sqlalchemy import text

from ddp_perf.errors import HistoryError
from ddp_perf.history import migrations
from ddp_perf.history.database import Database
from ddp_perf.history.store import HistoryStore
from tests.builders import make_case
from tests.recorded_sessions import make_recorded_session


@pytest.fixture
def database(url):
    with contextlib.closing(Database(url, patience_s=5)) as database:
        yield database


def add_a_column(connection):
    connection.execute(text("ALTER TABLE sessions ADD COLUMN remark TEXT"))


def fail(connection):
    add_a_column(connection)
    raise HistoryError("no")


def columns(database):
    with database.reading() as connection:
        return {column["name"] for column in sqlalchemy.inspect(connection).get_columns("sessions")}


def test_older_store_is_upgraded_once_and_keeps_its_sessions(url, database, monkeypatch):
    with contextlib.closing(HistoryStore(url)) as store:
        store.append([make_recorded_session(make_case(), 0, 0.01)])
    monkeypatch.setattr(migrations, "UPGRADES", (*migrations.UPGRADES, add_a_column))

    for _ in range(2):  # the second time, the column is there already
        with contextlib.closing(HistoryStore(url)) as store:
            (case,) = store.cases()
            assert len(store.series(case, "step_time").sessions) == 1

    assert "remark" in columns(database)


def test_failed_upgrade_changes_nothing(url, database, monkeypatch):
    HistoryStore(url).close()
    before = columns(database)
    monkeypatch.setattr(migrations, "UPGRADES", (*migrations.UPGRADES, fail))

    with pytest.raises(HistoryError, match="no"):
        HistoryStore(url)

    assert columns(database) == before
    monkeypatch.undo()
    HistoryStore(url).close()


def test_tables_of_a_newer_ddp_perf_are_refused(url, monkeypatch):
    monkeypatch.setattr(migrations, "UPGRADES", (*migrations.UPGRADES, add_a_column))
    HistoryStore(url).close()
    monkeypatch.undo()

    with pytest.raises(HistoryError, match=r"version 3, and this ddp-perf reads 2; use the newer"):
        HistoryStore(url)


def test_table_of_another_program_is_not_changed(url, database):
    with database.writing() as connection:
        connection.execute(text("CREATE TABLE figures (price INTEGER)"))

    with pytest.raises(HistoryError, match=r"'figures' that is not of this program"):
        HistoryStore(url)
