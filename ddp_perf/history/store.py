"""The store of the history: one database, to which sessions and audits are appended."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import sqlalchemy
import sqlalchemy.event
from sqlalchemy import (
    Column,
    Connection,
    Engine,
    Float,
    ForeignKey,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    RowMapping,
    Table,
    Text,
    UniqueConstraint,
    and_,
    exc,
    insert,
    inspect,
    or_,
    select,
    tuple_,
)
from sqlalchemy.dialects import postgresql, sqlite

from ddp_perf.core.case import Scalar
from ddp_perf.core.secret import without_passwords
from ddp_perf.core.verdict import GateAudit, Outcome
from ddp_perf.errors import HistoryError
from ddp_perf.history.records import (
    CaseRecord,
    HistoryPoint,
    RecordedFigure,
    RecordedVerdict,
    SessionInfo,
    SessionRecord,
    StoredCase,
    TimeSeries,
)
from ddp_perf.system.files import UNREADABLE

# One database, named by its URL: SQLite or PostgreSQL. Its errors contain the remedy.


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
        except UNREADABLE as error:
            raise HistoryError(f"{self.name}: {_MEANINGS['malformed']} ({error})") from None
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


# The tables of the history: sessions, cases, their figures, and the audits of the gate.
#
# There is one figure for each session, case and metric.


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
            " ddp-perf that wrote it, or name another database, which begins anew"
        )
    return True


def make(connection: Connection) -> None:
    """Make the tables unless they are there. The caller's transaction excludes other writers."""
    if not are_made(connection):
        METADATA.create_all(connection)
        connection.execute(insert(SCHEMA).values(version=SCHEMA_VERSION))


# The store of the history: it appends sessions and audits, and returns them.
#
# A session whose `append` has returned is on disk, and is stored once.


PATIENCE_S = 30.0
TOGETHER = 20  # sessions in one transaction of an import: their rows are adjacent on disk
_IDENTITY = (
    SESSIONS.c.accelerator,
    SESSIONS.c.host,
    SESSIONS.c.suite,
    SESSIONS.c.date,
    SESSIONS.c.started,
)
_BATCH = 500  # rows of one query: databases limit the number of parameters
T = TypeVar("T")
_ENCODE = msgspec.json.Encoder(order="deterministic").encode
_INFO = msgspec.json.Decoder(SessionInfo)
_AUDIT = msgspec.json.Decoder(GateAudit)
_VERDICT = msgspec.json.Decoder(RecordedVerdict)
_LAUNCHES = msgspec.json.Decoder(tuple[float, ...])
_WORK = msgspec.json.Decoder(dict[str, Scalar])


class HistoryStore:
    """The history behind a URL, ``sqlite:///FILE`` or ``postgresql://…``."""

    def __init__(self, url: str, *, create: bool = True, patience_s: float | None = None) -> None:
        """Open the store, and create it if there is none and `create` is true.

        Raises HistoryError if it cannot be opened, is corrupt, or has another version.
        """
        self._database = Database(url, patience_s=PATIENCE_S if patience_s is None else patience_s)
        self.name = self._database.name
        # Caches of rows that never change: most cases share their sessions, and most sessions
        # their cases.
        self._sessions: dict[int, SessionInfo] = {}
        self._cases: dict[tuple[str, ...], int] = {}
        path = self._database.path
        if path is not None and not create and not path.exists():
            raise HistoryError(f"{self.name}: there is no such file; --ddp-history writes one")
        if path is not None and create:
            _make_file(path)
        try:
            self._make_tables()
        except BaseException:
            self.close()
            raise

    def check_writable(self) -> None:
        """Check that `append` can write: insert a session and roll it back. Raises HistoryError."""
        with self._database.writing() as connection:
            row = dict.fromkeys((*(column.name for column in _IDENTITY), "info"), "")
            connection.execute(self._insert(SESSIONS), row)
            connection.rollback()

    def append(self, sessions: Iterable[SessionRecord]) -> int:
        """Store the sessions in one transaction, and return how many of them were new.

        They are on disk when this returns. A session is not stored twice: only missing parts of a
        stored one (more launches of a case, a verdict) are added. Raises HistoryError; then none
        of the sessions is stored.
        """
        records = list(sessions)
        with self._database.writing() as connection:
            keys, new = self._session_keys(connection, records)
            cases = self._case_keys(connection, records)
            rows = [
                _figure_row(figure, cases[_case_identity(record, case)], key)
                for key, record in zip(keys, records, strict=True)
                for case in record.cases
                for figure in case.figures
            ]
            if rows:
                rows.sort(key=lambda row: (row["case_key"], row["metric"], row["session_key"]))
                connection.execute(self._insert_figures(), rows)
        self._cases |= cases  # not earlier: the transaction has ended
        return new

    def cases(self) -> list[StoredCase]:
        """Return every case, by accelerator and id; the newest work of a case is the last."""
        query = select(CASES).order_by(CASES.c.accelerator, CASES.c.case_id, CASES.c.id)
        with self._database.reading() as connection:
            return [
                StoredCase(
                    key=row["id"],
                    accelerator=row["accelerator"],
                    case_id=row["case_id"],
                    work=_WORK.decode(row["work"]),
                )
                for row in connection.execute(query).mappings()
            ]

    def series(self, case: StoredCase, metric: str) -> TimeSeries:
        """Return the sessions of one metric, oldest first; empty if it was never measured."""
        wanted = and_(FIGURES.c.case_key == case.key, FIGURES.c.metric == metric)
        keys = select(FIGURES.c.session_key).where(wanted)
        with self._database.reading() as connection:
            rows = connection.execute(select(FIGURES).where(wanted)).mappings().all()
            if any(row["session_key"] not in self._sessions for row in rows):
                query = select(SESSIONS.c.id, SESSIONS.c.info).where(SESSIONS.c.id.in_(keys))
                self._sessions |= {
                    key: _INFO.decode(info) for key, info in connection.execute(query)
                }
            sessions = [
                HistoryPoint(session=self._sessions[row["session_key"]], figure=_figure(row))
                for row in rows
            ]
        sessions.sort(key=lambda session: (session.session.date, session.session.started))
        return TimeSeries(case=case, metric=metric, sessions=tuple(sessions))

    def metrics_with(self, outcomes: Iterable[Outcome]) -> list[tuple[int, str]]:
        """Return the keys of the cases, with the metric, that had one of these outcomes once."""
        columns = FIGURES.c.case_key, FIGURES.c.metric
        wanted = FIGURES.c.outcome.in_([outcome.value for outcome in outcomes])
        with self._database.reading() as connection:
            rows = connection.execute(select(*columns).where(wanted).distinct())
            return sorted((key, metric) for key, metric in rows)

    def records(self) -> list[SessionRecord]:
        """Return every session with its cases, oldest first."""
        figures = (
            select(FIGURES, CASES.c.case_id, CASES.c.work)
            .join(CASES)
            .order_by(FIGURES.c.session_key, FIGURES.c.case_key, FIGURES.c.metric)
        )
        cases: dict[int, list[CaseRecord]] = {}
        with self._database.reading() as connection:
            infos = connection.execute(select(SESSIONS.c.id, SESSIONS.c.info)).all()
            rows = connection.execute(figures).mappings()
            for (session, _), found in itertools.groupby(
                rows, lambda row: (row["session_key"], row["case_key"])
            ):
                of_case = [*found]
                case = CaseRecord(
                    case_id=of_case[0]["case_id"],
                    work=_WORK.decode(of_case[0]["work"]),
                    figures=tuple(map(_figure, of_case)),
                )
                cases.setdefault(session, []).append(case)
            records = [
                SessionRecord(info=_INFO.decode(info), cases=tuple(cases.get(key, ())))
                for key, info in infos
            ]
        return sorted(records, key=lambda record: (record.info.date, record.info.started))

    def append_audit(self, audit: GateAudit) -> None:
        """Store an audit, once. It is on disk when this returns. Raises HistoryError."""
        with self._database.writing() as connection:
            insertion = self._insert(AUDITS).on_conflict_do_nothing()
            connection.execute(insertion, _audit_row(audit))

    def audits(self) -> list[GateAudit]:
        """Return all audits, oldest first."""
        query = select(AUDITS.c.info).order_by(AUDITS.c.date, AUDITS.c.host, AUDITS.c.case_id)
        with self._database.reading() as connection:
            return [_AUDIT.decode(info) for info in connection.execute(query).scalars()]

    def close(self) -> None:
        """Close all connections to the database."""
        self._database.close()

    def _make_tables(self) -> None:
        with self._database.reading() as connection:
            made = are_made(connection)
        if not made:
            with self._database.making_tables() as connection:
                make(connection)

    def _session_keys(
        self, connection: Connection, records: Sequence[SessionRecord]
    ) -> tuple[list[int], int]:
        """Insert the new sessions. Return the key of every session, and the number of new ones."""
        rows = {record.info.identity: _session_row(record.info) for record in records}
        known = self._find(connection, SESSIONS.c.id, _IDENTITY, rows)
        new = [rows[identity] for identity in sorted(rows.keys() - known.keys())]
        if new:
            connection.execute(self._insert(SESSIONS).on_conflict_do_nothing(), new)
            known = self._find(connection, SESSIONS.c.id, _IDENTITY, rows)
        return [known[record.info.identity] for record in records], len(new)

    def _case_keys(
        self, connection: Connection, records: Sequence[SessionRecord]
    ) -> dict[tuple[str, ...], int]:
        wanted = {_case_identity(record, case) for record in records for case in record.cases}
        if wanted <= self._cases.keys():
            return self._cases
        known = self._known_cases(connection, wanted)
        new = sorted(wanted - known.keys())  # in one order: two writers cannot deadlock
        if new:
            names = ("accelerator", "case_id", "work")
            rows = [dict(zip(names, identity, strict=True)) for identity in new]
            connection.execute(self._insert(CASES).on_conflict_do_nothing(), rows)
            known = self._known_cases(connection, wanted)
        return known

    def _known_cases(
        self, connection: Connection, wanted: Iterable[tuple[str, ...]]
    ) -> dict[tuple[str, ...], int]:
        """Return the keys of the stored cases that have a wanted accelerator and id.

        Numbers of the work may be stored as 25 or 25.0: a session and its results file differ.
        """
        known: dict[tuple[str, ...], int] = {}
        for batch in chunks_of({identity[:2] for identity in wanted}, _BATCH):
            named = tuple_(CASES.c.accelerator, CASES.c.case_id).in_(batch)
            for key, accelerator, case_id, work in connection.execute(
                select(CASES.c.id, CASES.c.accelerator, CASES.c.case_id, CASES.c.work)
                .where(named)
                .order_by(CASES.c.id.desc())  # of two alike, the first one counts
            ):
                known[accelerator, case_id, _work_text(_WORK.decode(work))] = key
        return known

    def _find(
        self,
        connection: Connection,
        key: Any,
        columns: Sequence[Any],
        wanted: Iterable[tuple[str, ...]],
    ) -> dict[tuple[str, ...], int]:
        """Return the keys of the rows whose columns have one of the wanted values."""
        found: dict[tuple[str, ...], int] = {}
        for batch in chunks_of(wanted, _BATCH):
            query = select(key, *columns).where(tuple_(*columns).in_(batch))
            found |= {tuple(row[1:]): row[0] for row in connection.execute(query)}
        return found

    def _insert(self, table: Any) -> Any:
        """Return an INSERT of the dialect. SQLAlchemy has ON CONFLICT per dialect only."""
        return (sqlite if self._database.is_sqlite else postgresql).insert(table)

    def _insert_figures(self) -> Any:
        """Return an INSERT that replaces a figure by one with more launches, or a later verdict.

        The second stage, and the search for a commit, change the verdict of a stored session.
        """
        statement = self._insert(FIGURES)
        new = statement.excluded
        keys = [column.name for column in FIGURES.primary_key]
        return statement.on_conflict_do_update(
            index_elements=keys,
            set_={c.name: new[c.name] for c in FIGURES.columns if c.name not in keys},
            where=or_(
                new["count"] > FIGURES.c["count"],
                and_(new["count"] == FIGURES.c["count"], new["outcome"].is_not(None)),
            ),
        )


def chunks_of(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield lists of `size` items; the last list may be shorter."""
    rest = iter(items)
    while batch := list(itertools.islice(rest, size)):
        yield batch


def _make_file(path: Path) -> None:
    """Make an empty file, which SQLite takes for a new database, and its directory.

    SQLite itself would make one that the group cannot write, whatever the umask.
    """
    try:
        path.absolute().parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HistoryError(f"{path.parent}: cannot be created: {error.strerror}") from None
    if not path.exists():
        with contextlib.suppress(OSError):  # SQLite says what is wrong
            path.touch()


def _session_row(info: SessionInfo) -> dict[str, Any]:
    names = [column.name for column in _IDENTITY]
    return {
        **dict(zip(names, info.identity, strict=True)),
        "commit": info.environment.commit,
        "torch": info.environment.torch,
        "info": _ENCODE(info).decode(),
    }


def _case_identity(record: SessionRecord, case: CaseRecord) -> tuple[str, ...]:
    return record.info.environment.accelerator_key, case.case_id, _work_text(case.work)


def _work_text(work: Mapping[str, Scalar]) -> str:
    """Return the work as JSON, which is the same for 25 and 25.0."""
    whole = {
        name: int(value) if isinstance(value, float) and value.is_integer() else value
        for name, value in work.items()
    }
    return _ENCODE(whole).decode()


def _figure_row(figure: RecordedFigure, case_key: int, session_key: int) -> dict[str, Any]:
    verdict = figure.verdict
    return {
        "case_key": case_key,
        "metric": figure.metric,
        "session_key": session_key,
        "value": figure.value,
        "by_launch": _ENCODE(figure.launches).decode(),
        "count": len(figure.launches),
        "outcome": verdict and verdict.outcome.value,
        "verdict": verdict and _ENCODE(verdict).decode(),
        "baseline": figure.baseline,
        "disturbance": figure.disturbance,
    }


def _audit_row(audit: GateAudit) -> dict[str, Any]:
    return {
        "accelerator": audit.accelerator,
        "host": audit.host,
        "date": audit.date,
        "suite": audit.suite,
        "case_id": audit.case_id,
        "size": audit.size,
        "outcome": audit.outcome.value,
        "info": _ENCODE(audit).decode(),
    }


def _figure(row: RowMapping) -> RecordedFigure:
    """Return the figure. Raises DecodeError if a column of a damaged file is of another type."""
    return msgspec.convert(
        {
            "metric": row["metric"],
            "value": row["value"],
            "launches": _LAUNCHES.decode(row["by_launch"]),
            "verdict": row["verdict"] and _VERDICT.decode(row["verdict"]),
            "baseline": row["baseline"],
            "disturbance": row["disturbance"],
        },
        RecordedFigure,
    )
