"""The tables of the history: sessions, cases, their figures, and the audits of the gate.

There is one figure for each session, case and metric.
"""

from __future__ import annotations

from sqlalchemy import (
    Column,
    Connection,
    Float,
    ForeignKey,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    insert,
    inspect,
    select,
)

from ddp_perf.errors import HistoryError

SCHEMA_VERSION = 1
METADATA = MetaData()

SCHEMA = Table(
    "schema_version",
    METADATA,
    Column("version", Integer, nullable=False),
)

SESSIONS = Table(
    "sessions",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("accelerator", Text, nullable=False),
    Column("host", Text, nullable=False),
    Column("suite", Text, nullable=False),
    Column("date", Text, nullable=False),
    Column("started", Text, nullable=False),
    Column("commit", Text),  # `info` contains this and torch, too: these columns can be queried
    Column("torch", Text),
    Column("info", Text, nullable=False),  # SessionInfo as JSON
    UniqueConstraint("accelerator", "host", "suite", "date", "started"),
)

CASES = Table(
    "cases",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("accelerator", Text, nullable=False),
    Column("case_id", Text, nullable=False),
    Column("work", Text, nullable=False),  # as JSON, names sorted
    UniqueConstraint("accelerator", "case_id", "work"),
)

# The rows of a series are adjacent: reading a series is one scan along the primary key.
FIGURES = Table(
    "figures",
    METADATA,
    Column("case_key", ForeignKey(CASES.c.id), nullable=False),
    Column("metric", Text, nullable=False),
    Column("session_key", ForeignKey(SESSIONS.c.id), nullable=False),
    Column("value", Float(53)),
    Column("by_launch", Text, nullable=False),  # JSON list
    Column("count", Integer, nullable=False),  # of the launches
    Column("outcome", Text),
    Column("verdict", Text),  # as JSON
    Column("baseline", Float(53)),
    Column("disturbance", Text),
    PrimaryKeyConstraint("case_key", "metric", "session_key"),
)

# No session has an audit: its launches were slowed on purpose, or might have been.
AUDITS = Table(
    "audits",
    METADATA,
    Column("accelerator", Text, nullable=False),
    Column("host", Text, nullable=False),
    Column("date", Text, nullable=False),
    Column("suite", Text, nullable=False),
    Column("case_id", Text, nullable=False),
    Column("size", Float(53), nullable=False),  # `info` contains this and the outcome, too
    Column("outcome", Text, nullable=False),
    Column("info", Text, nullable=False),  # GateAudit as JSON
    PrimaryKeyConstraint("accelerator", "host", "date", "suite", "case_id"),
)


def are_made(connection: Connection) -> bool:
    """Return whether the database has the tables.

    Raises HistoryError if they have another version, or if another program made one of them.
    """
    tables = set(inspect(connection).get_table_names())
    if SCHEMA.name not in tables:
        if others := tables & set(METADATA.tables):
            raise HistoryError(
                f"it has a table {sorted(others)[0]!r} that is not of this program; name another"
                " database"
            )
        return False
    found = connection.execute(select(SCHEMA.c.version)).scalar_one()
    if found != SCHEMA_VERSION:
        raise HistoryError(
            f"its tables have version {found}, and this ddp-perf reads {SCHEMA_VERSION}; use the"
            " ddp-perf that wrote it, or name another database and fill it from the results files:"
            " ddp-perf history import"
        )
    return True


def make(connection: Connection) -> None:
    """Make the tables unless they are there. The caller's transaction excludes other writers."""
    if not are_made(connection):
        METADATA.create_all(connection)
        connection.execute(insert(SCHEMA).values(version=SCHEMA_VERSION))
