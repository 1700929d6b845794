"""Tables of another version, and those of other programs, are refused and not changed."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from ddp_perf.errors import HistoryError
from ddp_perf.history.store import HistoryStore


@pytest.mark.parametrize("version", [0, 2])
def test_tables_of_another_version_are_refused_with_the_remedy(url, database, version):
    HistoryStore(url).close()
    with database.writing() as connection:
        connection.execute(text(f"UPDATE schema_version SET version = {version}"))

    with pytest.raises(HistoryError) as caught:
        HistoryStore(url)

    assert str(caught.value) == (
        f"{database.name}: its tables have version {version}, and this ddp-perf reads 1; use the"
        " ddp-perf that wrote it, or name another database, which begins anew"
    )


def test_table_of_another_program_is_not_changed(url, database):
    with database.writing() as connection:
        connection.execute(text("CREATE TABLE figures (price INTEGER)"))

    with pytest.raises(HistoryError, match=r"'figures' that is not of this program"):
        HistoryStore(url)
