"""Write the reference of all columns from the tables, or check that it is current (--check)."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from ddp_perf.core.decomposition import TERMS
from ddp_perf.render.model import SOFT_HYPHEN, Column
from ddp_perf.report.columns import session_columns
from ddp_perf.report.duel.report import DUEL_COLUMNS
from ddp_perf.report.figures import HIDDEN, MEANINGS, SHOWN, UTILISATION
from ddp_perf.report.work_rows import WORK_COLUMNS

PAGE = Path(__file__).parents[1] / "docs" / "columns.md"
HEAD = (
    "# Columns\n\n`python ci/columns.py` writes this page. The key is the name of a figure in CSV"
    " and JSON, where it is in seconds, bytes, joules or a fraction. A figure without a key is only"
    " in the table. A table leaves out the columns that no case has a figure for.\n"
)
TERM_COLUMNS = [
    Column(title=name, key=name if name in TERMS else "", meaning=MEANINGS[name]) for name in SHOWN
] + [Column(title="hidden", meaning=HIDDEN)]
TABLES: dict[str, Sequence[Column]] = {
    "A session: `comprehensive_summary.csv`": session_columns(),
    "Utilisation: `comprehensive_summary.csv`": [one.column for one in UTILISATION],
    "Terms of a step, in ms: `terms` in `duel.json`": TERM_COLUMNS,
    "A duel: `rows` in `duel.json`": DUEL_COLUMNS,
    "Counted work: `rows` in `work.json`": WORK_COLUMNS,
}


def lines() -> Iterator[str]:
    yield HEAD
    for title, columns in TABLES.items():
        yield f"## {title}\n"
        yield "| key | title | meaning |"
        yield "|---|---|---|"
        for one in columns:
            key = f"`{one.key}`" if one.key else ""
            yield f"| {key} | {one.title.replace(SOFT_HYPHEN, '')} | {one.meaning} |"
        yield ""


def main(check: bool) -> int:
    text = "\n".join(lines()).rstrip() + "\n"
    stale = not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text
    if check and stale:
        print("docs/columns.md is out of date: run python ci/columns.py")
    elif stale:
        PAGE.write_text(text, encoding="utf-8")
    return int(check and stale)


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
