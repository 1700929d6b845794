"""One database by its URL: SQLite or PostgreSQL, with errors that say what to do."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sqlalchemy
import sqlalchemy.event
from sqlalchemy import Connection, Engine, exc

from ddp_perf.errors import HistoryError

_EXAMPLES = "sqlite:///artifacts/history.sqlite or postgresql://user@host/database"
_ADVISORY_LOCK = 0x0DD9  # of PostgreSQL: who makes or upgrades the tables holds it
# Part of the driver's message, or PostgreSQL's SQLSTATE, whose messages are in the server's
# language → what it means, and the remedy.
_MEANINGS = {
    "is locked": "another process has been writing here for long; if none is, copy the file",
    "55P03": "another session has held a lock here for long; pg_stat_activity names it",
    "readonly": "cannot be written: it is read-only; make it writable, or name another",
    "is full": "cannot be written: the disk is full",
    "malformed": "is corrupt; restore a copy, or move it away and import the results files anew",
    "not a database": "is no SQLite database; name another file",
    "unable to open": "cannot be opened; see that its directory exists and can be written",
}


class Database:
    """Transactions on the engine of a URL."""

    def __init__(self, url: str, *, patience_s: float) -> None:
        """Raises HistoryError for a URL that names no such database, or keeps nothing."""
        try:
            parsed = sqlalchemy.make_url(url)
            self.name = parsed.render_as_string(hide_password=True)
            backend = parsed.get_backend_name()
            if backend not in ("sqlite", "postgresql"):
                raise HistoryError(
                    f"{self.name}: a history is kept in SQLite or PostgreSQL: {_EXAMPLES}"
                )
            self.is_sqlite = backend == "sqlite"
            self.path = _file_of(parsed) if self.is_sqlite else None
            engine = _sqlite if self.is_sqlite else _postgresql
            self._engine = engine(parsed, patience_s)
        except (exc.ArgumentError, ValueError):
            hidden = re.sub(r"//.*@", "//***@", url)
            raise HistoryError(
                f"{hidden}: is no URL of a history that is kept, as {_EXAMPLES}"
            ) from None
        self._writer = self._engine.execution_options(writes=True)

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        """Raises HistoryError where the database cannot be read."""
        with self._told(), self._engine.begin() as connection:
            yield connection

    @contextlib.contextmanager
    def writing(self) -> Iterator[Connection]:
        """All of it or nothing; on disk when it ends. Raises HistoryError."""
        with self._told(), self._writer.begin() as connection:
            yield connection

    @contextlib.contextmanager
    def making_tables(self) -> Iterator[Connection]:
        """As `writing`, one process at a time."""
        with self.writing() as connection:
            if not self.is_sqlite:  # there every writer is alone
                lock = sqlalchemy.func.pg_advisory_xact_lock(_ADVISORY_LOCK)
                connection.execute(sqlalchemy.select(lock))
            yield connection

    def close(self) -> None:
        self._engine.dispose()

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """In one line, without the statement and its hundred parameters."""
        try:
            yield
        except exc.DBAPIError as error:
            said = " ".join(str(error.orig).split())
            known = f"{said} {getattr(error.orig, 'sqlstate', None)}"
            meanings = [meaning for part, meaning in _MEANINGS.items() if part in known]
            raise HistoryError(f"{self.name}: {meanings[0] if meanings else said}") from None
        except HistoryError as error:
            raise HistoryError(f"{self.name}: {error}") from None


def _file_of(url: sqlalchemy.URL) -> Path:
    """Raises ValueError for what SQLite keeps in memory, or opens by a URI of its own."""
    name = url.database or ":memory:"
    if name == ":memory:" or name.startswith("file:") or url.query:
        raise ValueError("names no plain file")
    return Path(name)


def _postgresql(url: sqlalchemy.URL, patience_s: float) -> Engine:
    patience_ms = max(1, int(1000 * patience_s))  # 0 would be for ever
    try:
        engine = sqlalchemy.create_engine(
            url.set(drivername="postgresql+psycopg"),
            connect_args={
                "client_encoding": "utf8",  # whatever PGCLIENTENCODING says
                "connect_timeout": max(2, int(patience_s)),
                "tcp_user_timeout": patience_ms,  # of a server that is gone in between
            },
        )
    except ImportError:
        name = url.render_as_string(hide_password=True)
        raise HistoryError(f"{name}: needs psycopg: pip install 'psycopg[binary]'") from None

    @sqlalchemy.event.listens_for(engine, "connect")
    def connect(connection: Any, _: Any) -> None:
        encoding = connection.info.parameter_status("server_encoding")
        if encoding != "UTF8":  # it would refuse a name at the session's end, or garble it
            raise HistoryError(
                f"its encoding is {encoding}, and a history needs UTF8; make another database with"
                " createdb --encoding=UTF8 --template=template0 NAME"
            )

    @sqlalchemy.event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = {patience_ms}")

    return engine


def _sqlite(url: sqlalchemy.URL, patience_s: float) -> Engine:
    engine = sqlalchemy.create_engine(
        url.set(drivername="sqlite"), connect_args={"timeout": patience_s}
    )

    # The driver begins a transaction late, and a reader that becomes a writer may find another
    # in its way at once, without waiting: so we say when, and writers say so from the start.
    @sqlalchemy.event.listens_for(engine, "connect")
    def connect(connection: Any, _: Any) -> None:
        connection.isolation_level = None

    @sqlalchemy.event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get("writes", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine
