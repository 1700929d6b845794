"""A PostgreSQL that goes away: before a session is stored in it, or in the middle of that."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import sqlalchemy
import sqlalchemy.event

from tests.databases import empty_database
from tests.faults.matrix import Tried
from tests.faults.storage import Writer, append_session, play, recorded_sessions


@contextlib.contextmanager
def _gone(server: Path) -> Iterator[None]:
    away = server.with_name("away")
    server.rename(away)
    try:
        yield
    finally:
        away.rename(server)


@contextlib.contextmanager
def _ended_in_a_save(server: Path) -> Iterator[None]:
    """End each connection to the server when it has stored a part of a session."""
    url = f"postgresql+psycopg://postgres@/postgres?host={server}"
    other = sqlalchemy.create_engine(url, isolation_level="AUTOCOMMIT")

    def end(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith("INSERT INTO figures"):
            pid = cursor.connection.info.backend_pid
            with other.connect() as killer:
                killer.exec_driver_sql(f"SELECT pg_terminate_backend({pid})")

    sqlalchemy.event.listen(sqlalchemy.Engine, "before_cursor_execute", end)
    try:
        yield
    finally:
        sqlalchemy.event.remove(sqlalchemy.Engine, "before_cursor_execute", end)
        other.dispose()


ENDS: dict[str, Callable[[Path], contextlib.AbstractContextManager[None]]] = {
    "PostgreSQL is gone": _gone,
    "PostgreSQL ends the connection in the middle of a save": _ended_in_a_save,
}


def play_end(fault: str, directory: Path) -> Tried:
    """Store a session, another one while the server goes away, and that again once it is back.

    The server is that of `tests.databases`, behind a link.
    """
    with empty_database("postgresql", directory) as text:
        url = sqlalchemy.make_url(text)
        server = directory / "server"
        server.symlink_to(str(url.query["host"]))
        linked = url.update_query_dict({"host": str(server)}).render_as_string(hide_password=False)
        writer = Writer(
            name="the history (PostgreSQL)",
            write=lambda _, number: append_session(linked, number),
            read=lambda _: recorded_sessions(linked),
            named=lambda _: linked,
        )
        tried = play(writer, directory, fault, "a save", ENDS[fault](server))
    return msgspec.structs.replace(tried, seen=tried.seen.replace(linked, "URL"))
