"""The version of a store's tables, and the upgrades from older versions."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import Connection, insert, inspect, select, text, update

from ddp_perf.core.session import MEDIANS
from ddp_perf.errors import HistoryError
from ddp_perf.history.tables import AUDITS, FIGURES, METADATA, SCHEMA


def _name_medians(connection: Connection) -> None:
    """Give the figures of version 1, which are of the median step, names of their own.

    The column is renamed so that an older ddp-perf that has the store open fails at its next append
    and keeps its results. Else it would store medians as levels.
    """
    connection.execute(text("ALTER TABLE figures RENAME COLUMN launches TO by_launch"))
    for metric, median in MEDIANS.items():
        renamed = update(FIGURES).where(FIGURES.c.metric == metric).values(metric=median)
        connection.execute(renamed)


def _add_audits(connection: Connection) -> None:
    """Make the table of audits, which version 2 did not have."""
    AUDITS.create(connection)


# From version 1 to 2, from 2 to 3, and so on. Each runs once, in the transaction that records it.
UPGRADES: tuple[Callable[[Connection], None], ...] = (_name_medians, _add_audits)


def is_current(connection: Connection) -> bool:
    """Return whether the tables have the newest version.

    Raises HistoryError if a newer ddp-perf, or another program, created the store.
    """
    found = _version(connection)
    if found is not None and found > _newest():
        raise HistoryError(
            f"its tables have version {found}, and this ddp-perf reads {_newest()}; use the newer"
            " ddp-perf that wrote it"
        )
    return found == _newest()


def migrate(connection: Connection) -> None:
    """Create the tables, or upgrade them. The caller's transaction excludes other writers."""
    if is_current(connection):
        return
    found = _version(connection)
    if found is None:
        METADATA.create_all(connection)
        connection.execute(insert(SCHEMA).values(version=_newest()))
        return
    for version, upgrade in enumerate(UPGRADES[found - 1 :], start=found + 1):
        upgrade(connection)
        connection.execute(update(SCHEMA).values(version=version))


def _newest() -> int:
    return 1 + len(UPGRADES)


def _version(connection: Connection) -> int | None:
    """Return the version of the tables, or None if the store is empty."""
    tables = set(inspect(connection).get_table_names())
    if SCHEMA.name in tables:
        return int(connection.execute(select(SCHEMA.c.version)).scalar_one())
    if others := tables & set(METADATA.tables):
        raise HistoryError(
            f"it has a table {sorted(others)[0]!r} that is not of this program; name another"
            " database"
        )
    return None
