"""The tables of the history: sessions, cases, their figures, and the audits of the gate.

There is one figure for each session, case and metric.
"""

from __future__ import annotations

from sqlalchemy import (
    Column,
    Float,
    ForeignKey,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
)

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
