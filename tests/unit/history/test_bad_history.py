"""A store that cannot be used reports its URL, the reason and the remedy in one line."""

from __future__ import annotations

import contextlib
import sqlite3

import pytest
import sqlalchemy

from ddp_perf.errors import HistoryError
from ddp_perf.history.store import Database, HistoryStore
from tests.builders import make_case
from tests.databases import database_of_encoding, empty_database, make_read_only
from tests.recorded_sessions import make_recorded_session

RECORD = make_recorded_session(make_case(), 0, 0.01)


def message_of(caught, path):
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    return message


@pytest.fixture
def path(tmp_path):
    """Return the path of a SQLite history of one session."""
    path = tmp_path / "history.sqlite"
    with contextlib.closing(HistoryStore(f"sqlite:///{path}")) as store:
        store.append([RECORD])
    return path


def sessions(path):
    with contextlib.closing(HistoryStore(f"sqlite:///{path}", create=False)) as store:
        return [n for case in store.cases() for n in store.series(case, "step_time").sessions]


def test_locked_file_is_reported(path):
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        store = HistoryStore(f"sqlite:///{path}", patience_s=0.01)
        with pytest.raises(HistoryError) as caught:
            store.append([make_recorded_session(make_case(), 1, 0.01)])
        store.close()

    assert "another process has been writing here for long" in message_of(caught, path)
    assert len(sessions(path)) == 1


def test_read_only_file_is_reported(path):
    make_read_only(path)
    store = HistoryStore(f"sqlite:///{path}")
    with pytest.raises(HistoryError) as caught:
        store.append([make_recorded_session(make_case(), 1, 0.01)])
    store.close()

    assert "it is read-only; make it writable" in message_of(caught, path)


def test_full_disk_is_reported_and_keeps_the_history(path):
    store = HistoryStore(f"sqlite:///{path}")
    with store._database.reading() as connection:  # no more space than the file takes now
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
    many = [make_recorded_session(make_case(), number, 0.01) for number in range(1, 500)]
    with pytest.raises(HistoryError) as caught:
        store.append(many)
    store.close()

    assert "the disk is full" in message_of(caught, path)
    assert len(sessions(path)) == 1


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param(b"no database at all\n" * 100, "is not a SQLite database", id="text"),
        pytest.param(None, "is corrupt; restore a copy", id="overwritten pages"),
    ],
)
def test_corrupt_file_is_reported_and_not_changed(path, content, expected):
    data = path.read_bytes()
    path.write_bytes(content or data[:100] + b"\xff" * (len(data) - 100))
    broken = path.read_bytes()

    with pytest.raises(HistoryError) as caught:
        HistoryStore(f"sqlite:///{path}")

    assert expected in message_of(caught, path)
    assert path.read_bytes() == broken


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE figures SET by_launch = '[0.1, '",
        "UPDATE figures SET value = 'no number'",
        "UPDATE sessions SET info = '{}'",
        "UPDATE cases SET work = '[]'",
    ],
)
def test_a_damaged_row_is_reported(path, damage):
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.execute(damage)
    store = HistoryStore(f"sqlite:///{path}")

    with pytest.raises(HistoryError) as caught, contextlib.closing(store):
        store.records()

    assert "is corrupt; restore a copy" in message_of(caught, path)


def test_reading_does_not_create_a_missing_file(tmp_path):
    path = tmp_path / "nowhere" / "history.sqlite"

    with pytest.raises(HistoryError) as caught:
        HistoryStore(f"sqlite:///{path}", create=False)

    assert "there is no such file; --ddp-history writes one" in message_of(caught, path)
    assert not path.parent.exists()


def test_missing_directory_is_created(tmp_path):
    path = tmp_path / "new" / "history.sqlite"
    HistoryStore(f"sqlite:///{path}").close()

    assert path.exists()


def test_directory_that_cannot_be_created_is_reported(tmp_path):
    (tmp_path / "file").write_text("")

    with pytest.raises(HistoryError) as caught:
        HistoryStore(f"sqlite:///{tmp_path}/file/deeper/history.sqlite")

    assert "cannot be created: Not a directory" in message_of(caught, tmp_path / "file" / "deeper")


@pytest.mark.parametrize(
    "url",
    [
        "history.sqlite",
        "mysql://host/db",
        "sqlite",
        "sqlite://artifacts/history.sqlite",
        "sqlite://",
        "sqlite:///",
        "sqlite:///:memory:",
        "sqlite:///history.sqlite?mode=ro",
        "sqlite:///file:history.sqlite?uri=true",
        "sqlite:///file:history.sqlite",
        "postgresql://me:secret@host:port/db",
        "postgresql://host:port/db?password=secret",
    ],
)
def test_url_that_names_no_stored_database_is_refused(url, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(HistoryError, match=r"sqlite:///artifacts/history\.sqlite") as caught:
        HistoryStore(url)

    assert "secret" not in message_of(caught, url.replace("secret", "***"))
    assert list(tmp_path.iterdir()) == []


def test_table_locked_by_another_database_session_is_reported(tmp_path):
    with empty_database("postgresql", tmp_path) as url:
        holder = Database(url, patience_s=5)
        store = HistoryStore(url, patience_s=0.05)
        with contextlib.closing(holder), contextlib.closing(store), holder.writing() as connection:
            connection.exec_driver_sql("LOCK TABLE figures")
            with pytest.raises(
                HistoryError, match="another database session has had a lock for long"
            ):
                store.append([RECORD])


def test_lock_is_reported_if_the_server_has_another_language(tmp_path):
    with empty_database("postgresql", tmp_path) as url:
        database = Database(url, patience_s=5)
        with (
            contextlib.closing(database),
            pytest.raises(HistoryError, match="another database session has had a lock for long"),
            database.writing() as connection,
        ):
            connection.exec_driver_sql(
                "DO $$ BEGIN RAISE 'Zeitüberschreitung' USING ERRCODE = '55P03'; END $$"
            )


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
def test_database_of_another_encoding_is_refused_with_the_remedy(encoding):
    with database_of_encoding(encoding) as url:
        with pytest.raises(HistoryError) as caught:
            HistoryStore(url)

        message = message_of(caught, sqlalchemy.make_url(url).render_as_string(hide_password=True))
        assert f"its encoding is {encoding}, and a history needs UTF8" in message
        assert "createdb --encoding=UTF8 --template=template0 NAME" in message


def test_client_encoding_of_the_user_does_not_matter(tmp_path, monkeypatch):
    with empty_database("postgresql", tmp_path) as url:
        monkeypatch.setenv("PGCLIENTENCODING", "SQL_ASCII")
        with contextlib.closing(HistoryStore(url)) as store:
            store.append([RECORD])
            (case,) = store.cases()
        monkeypatch.undo()

        assert case.case_id == make_case().id


def test_server_that_does_not_answer_is_reported_without_the_password():
    with pytest.raises(HistoryError) as caught:
        HistoryStore("postgresql://me:secret@127.0.0.1:1/nothing", patience_s=2)

    message = message_of(caught, "postgresql://me:***@127.0.0.1:1/nothing")
    assert "refused" in message
    assert "secret" not in message
