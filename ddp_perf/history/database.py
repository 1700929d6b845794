"""One database, named by its URL: SQLite or PostgreSQL. Its errors contain the remedy."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sqlalchemy
import sqlalchemy.event
from sqlalchemy import Connection, Engine, exc

from ddp_perf.core.secrets import without_passwords
from ddp_perf.errors import HistoryError

_EXAMPLES = "sqlite:///artifacts/history.sqlite or postgresql://user@host/database"
_ADVISORY_LOCK = 0x0DD9  # PostgreSQL: taken by the process that creates the tables
# Keys: a part of the driver's message, or PostgreSQL's SQLSTATE, because its messages are in the
# server's language. Values: the meaning and the remedy.
_MEANINGS = {
    "is locked": "another process has been writing here for long; if none is, copy the file",
    "55P03": "another database session has had a lock for long; pg_stat_activity names it",
    "readonly": "cannot be written: it is read-only; make it writable, or name another",
    "is full": "cannot be written: the disk is full",
    "malformed": "is corrupt; restore a copy, or move it away and import the results files anew",
    "not a database": "is not a SQLite database; name another file",
    "unable to open": "cannot be opened; check that its directory exists and is writable",
}


class Database:
    """A database of the history, and its transactions."""

    def __init__(self, url: str, *, patience_s: float) -> None:
        """Open the database of `url`.

        Raises HistoryError if the URL names neither SQLite nor PostgreSQL, or a database in memory.
        """
        try:
            parsed = sqlalchemy.make_url(url)
            self.name = without_passwords(url)
            backend = parsed.get_backend_name()
            if backend not in ("sqlite", "postgresql"):
                raise HistoryError(
                    f"{self.name}: a history needs SQLite or PostgreSQL: {_EXAMPLES}"
                )
            self.is_sqlite = backend == "sqlite"
            self.path = _file_of(parsed) if self.is_sqlite else None
            engine = _sqlite if self.is_sqlite else _postgresql
            self._engine = engine(parsed, patience_s)
        except (exc.ArgumentError, ValueError):
            raise HistoryError(
                f"{without_passwords(url)}: is not the URL of a history, such as {_EXAMPLES}"
            ) from None
        self._writer = self._engine.execution_options(writes=True)

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        """Begin a transaction that reads. Raises HistoryError if the database cannot be read."""
        with self._reported(), self._engine.begin() as connection:
            yield connection

    @contextlib.contextmanager
    def writing(self) -> Iterator[Connection]:
        """Begin a transaction that writes. Its end puts it on disk. Raises HistoryError."""
        with self._reported(), self._writer.begin() as connection:
            yield connection

    @contextlib.contextmanager
    def making_tables(self) -> Iterator[Connection]:
        """Begin a transaction that writes, while no other process creates tables."""
        with self.writing() as connection:
            if not self.is_sqlite:  # SQLite has one writer at a time
                lock = sqlalchemy.func.pg_advisory_xact_lock(_ADVISORY_LOCK)
                connection.execute(sqlalchemy.select(lock))
            yield connection

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    @contextlib.contextmanager
    def _reported(self) -> Iterator[None]:
        """Turn database errors into a HistoryError of one line, without the SQL statement."""
        try:
            yield
        except exc.DBAPIError as error:
            message = " ".join(str(error.orig).split())
            searched = f"{message} {getattr(error.orig, 'sqlstate', None)}"
            meanings = [meaning for part, meaning in _MEANINGS.items() if part in searched]
            raise HistoryError(f"{self.name}: {meanings[0] if meanings else message}") from None
        except HistoryError as error:
            raise HistoryError(f"{self.name}: {error}") from None


def _file_of(url: sqlalchemy.URL) -> Path:
    """Return the file of a SQLite URL. Raises ValueError if it names memory or a SQLite URI."""
    name = url.database or ":memory:"
    if name == ":memory:" or name.startswith("file:") or url.query:
        raise ValueError("does not name a plain file")
    return Path(name)


def _postgresql(url: sqlalchemy.URL, patience_s: float) -> Engine:
    patience_ms = max(1, int(1000 * patience_s))  # 0 would mean no limit
    try:
        engine = sqlalchemy.create_engine(
            url.set(drivername="postgresql+psycopg"),
            connect_args={
                "client_encoding": "utf8",  # PGCLIENTENCODING must not change it
                "connect_timeout": max(2, int(patience_s)),
                "tcp_user_timeout": patience_ms,  # for a server that has disappeared
            },
        )
    except ImportError:
        name = url.render_as_string(hide_password=True)
        raise HistoryError(f"{name}: needs psycopg: pip install 'psycopg[binary]'") from None

    @sqlalchemy.event.listens_for(engine, "connect")
    def connect(connection: Any, _: Any) -> None:
        encoding = connection.info.parameter_status("server_encoding")
        if encoding != "UTF8":  # it would refuse or damage a name at the end of the session
            raise HistoryError(
                f"its encoding is {encoding}, and a history needs UTF8; create another database"
                " with createdb --encoding=UTF8 --template=template0 NAME"
            )

    @sqlalchemy.event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = {patience_ms}")

    return engine


def _sqlite(url: sqlalchemy.URL, patience_s: float) -> Engine:
    engine = sqlalchemy.create_engine(
        url.set(drivername="sqlite"), connect_args={"timeout": patience_s}
    )

    # The driver begins a transaction late. A reader that becomes a writer fails at once, without
    # waiting, if there is another writer. So transactions begin explicitly, and as writers.
    @sqlalchemy.event.listens_for(engine, "connect")
    def connect(connection: Any, _: Any) -> None:
        connection.isolation_level = None

    @sqlalchemy.event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get("writes", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine
