"""Older tables are upgraded once, newer ones are refused, those of other programs are kept."""

from __future__ import annotations

import contextlib
import threading

import pytest
import sqlalchemy
from sqlalchemy import text

from ddp_perf.errors import HistoryError
from ddp_perf.history import migrations
from ddp_perf.history.store import HistoryStore
from tests.audits import make_audit
from tests.builders import make_case
from tests.recorded_sessions import make_recorded_session

CASE = make_case()
# What a ddp-perf of version 1 executes to append a figure of a session that is stored.
APPEND_OF_VERSION_1 = (
    "INSERT INTO figures (case_key, metric, session_key, value, launches, count)"
    " SELECT case_key, 'tail', session_key, 1.0, '[1.0]', 1 FROM figures"
)


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
        store.append([make_recorded_session(CASE, 0, 0.01)])
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

    with pytest.raises(HistoryError, match=r"version 4, and this ddp-perf reads 3; use the newer"):
        HistoryStore(url)


def test_table_of_another_program_is_not_changed(url, database):
    with database.writing() as connection:
        connection.execute(text("CREATE TABLE figures (price INTEGER)"))

    with pytest.raises(HistoryError, match=r"'figures' that is not of this program"):
        HistoryStore(url)


def as_version_1(database):
    """Bring the tables back to version 1."""
    with database.writing() as connection:
        connection.execute(text("DROP TABLE audits"))
        connection.execute(text("ALTER TABLE figures RENAME COLUMN by_launch TO launches"))
        connection.execute(text("UPDATE schema_version SET version = 1"))


@pytest.fixture
def version_1(url, database):
    """A store of version 1 with three sessions."""
    with contextlib.closing(HistoryStore(url)) as store:
        store.append([make_recorded_session(CASE, number, 0.01) for number in range(3)])
    as_version_1(database)
    return url


def series(url, metric):
    with contextlib.closing(HistoryStore(url, create=False)) as store:
        (case,) = store.cases()
        return store.series(case, metric)


def test_the_medians_of_version_1_are_a_series_of_their_own(version_1):
    medians = series(version_1, "median_step_time").sessions

    assert [point.figure.value for point in medians] == [0.01] * 3
    assert [len(point.figure.launches) for point in medians] == [3] * 3
    assert all(point.figure.verdict is not None for point in medians)
    levels = series(version_1, "step_time")
    assert (levels.sessions, levels.only_medians) == ((), 3)


def test_a_session_of_version_1_that_is_imported_has_its_level_and_keeps_its_median(version_1):
    with contextlib.closing(HistoryStore(version_1)) as store:
        assert store.append([make_recorded_session(CASE, 1, 0.009)]) == 0

    levels = series(version_1, "step_time")
    assert [point.figure.value for point in levels.sessions] == [0.009]
    assert levels.only_medians == 2
    assert len(series(version_1, "median_step_time").sessions) == 3


def test_an_older_ddp_perf_that_has_the_store_open_fails_instead_of_storing_medians(
    version_1, database
):
    with database.writing() as connection:
        assert connection.execute(text(APPEND_OF_VERSION_1)).rowcount == 3  # it did before
        connection.rollback()
    series(version_1, "step_time")  # upgrades the tables

    with pytest.raises(HistoryError, match="launches"), database.writing() as connection:
        connection.execute(text(APPEND_OF_VERSION_1))

    assert series(version_1, "tail").sessions == ()


def test_what_an_older_ddp_perf_appends_while_the_upgrade_waits_is_upgraded_too(
    version_1, database
):
    upgrade = threading.Thread(target=series, args=(version_1, "step_time"))
    with database.writing() as connection:
        connection.execute(text(APPEND_OF_VERSION_1))
        upgrade.start()
        upgrade.join(0.5)
        assert upgrade.is_alive()
    upgrade.join()

    assert series(version_1, "tail").sessions == ()
    assert len(series(version_1, "median_tail").sessions) == 3


def test_an_interrupted_upgrade_leaves_version_1_and_the_next_one_completes_it(
    version_1, database, monkeypatch
):
    upgrade = migrations.UPGRADES[0]

    def interrupted(connection):
        upgrade(connection)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(migrations, "UPGRADES", (interrupted,))
        with pytest.raises(KeyboardInterrupt):
            HistoryStore(version_1)

    with database.reading() as connection:
        assert connection.execute(text("SELECT version FROM schema_version")).scalar_one() == 1
        names = set(connection.execute(text("SELECT metric FROM figures")).scalars())
        assert names == {"step_time"}
    assert len(series(version_1, "median_step_time").sessions) == 3


def test_a_store_of_version_2_gets_a_table_of_audits_and_keeps_its_sessions(url, database):
    with contextlib.closing(HistoryStore(url)) as store:
        store.append([make_recorded_session(CASE, 0, 0.01)])
    with database.writing() as connection:
        connection.execute(text("DROP TABLE audits"))
        connection.execute(text("UPDATE schema_version SET version = 2"))

    with contextlib.closing(HistoryStore(url)) as store:
        assert store.audits() == []
        store.append_audit(make_audit())
    with contextlib.closing(HistoryStore(url)) as store:
        assert store.audits() == [make_audit()]
    assert len(series(url, "step_time").sessions) == 1
