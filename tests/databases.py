"""An empty history database for a test: SQLite always, PostgreSQL where ci/test could start one."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

KINDS = ("sqlite", "postgresql")


@contextlib.contextmanager
def empty_database(kind: str, directory: Path) -> Iterator[str]:
    """Its URL. Skips where there is no PostgreSQL."""
    if kind == "sqlite":
        yield f"sqlite:///{directory}/history.sqlite"
        return
    server = os.environ.get("DDP_TEST_POSTGRESQL")
    if server is None:
        pytest.skip("no PostgreSQL (ci/test starts one where Debian's package is installed)")
    import psycopg  # of the extra "postgres"

    schema = f"test_{uuid.uuid4().hex}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {schema}")
        try:
            separator = "&" if "?" in server else "?"
            yield f"{server}{separator}options=-csearch_path%3D{schema}"
        finally:
            connection.execute(f"DROP SCHEMA {schema} CASCADE")


def make_read_only(path: Path) -> None:
    """For root too: SQLite writes no file of a later format than its own (byte 18)."""
    data = bytearray(path.read_bytes())
    data[18] = 255
    path.write_bytes(data)
