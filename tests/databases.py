"""Empty databases for tests of the history: SQLite, and PostgreSQL if ci/test started one."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy

KINDS = ("sqlite", "postgresql")


@contextlib.contextmanager
def empty_database(kind: str, directory: Path) -> Iterator[str]:
    """Yield the URL of an empty database. Skip the test if there is no PostgreSQL."""
    if kind == "sqlite":
        yield f"sqlite:///{directory}/history.sqlite"
        return
    schema = f"test_{uuid.uuid4().hex}"
    with _server() as (url, connection):
        connection.exec_driver_sql(f"CREATE SCHEMA {schema}")
        try:
            yield _text(url.update_query_dict({"options": f"-csearch_path={schema}"}))
        finally:
            connection.exec_driver_sql(f"DROP SCHEMA {schema} CASCADE")


@contextlib.contextmanager
def database_of_encoding(encoding: str) -> Iterator[str]:
    """Yield the URL of an empty PostgreSQL database. Skip the test if there is none."""
    name = f"test_{uuid.uuid4().hex}"
    with _server() as (url, connection):
        connection.exec_driver_sql(
            f"CREATE DATABASE {name} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0"
        )
        try:
            yield _text(url.set(database=name))
        finally:
            connection.exec_driver_sql(f"DROP DATABASE {name}")


@contextlib.contextmanager
def _server() -> Iterator[tuple[sqlalchemy.URL, sqlalchemy.Connection]]:
    """Yield the URL of the server's own database, and a connection that commits by itself."""
    server = os.environ.get("DDP_TEST_POSTGRESQL")
    if server is None:
        pytest.skip("no PostgreSQL (ci/test starts one where Debian's package is installed)")
    url = sqlalchemy.make_url(server)
    engine = sqlalchemy.create_engine(
        url.set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT"
    )
    with engine.connect() as connection:
        yield url, connection
    engine.dispose()


def _text(url: sqlalchemy.URL) -> str:
    return url.render_as_string(hide_password=False)


def make_read_only(path: Path) -> None:
    """Make a SQLite file read-only, for root too.

    SQLite does not write a file of a later format than its own (byte 18).
    """
    data = bytearray(path.read_bytes())
    data[18] = 255
    path.write_bytes(data)
