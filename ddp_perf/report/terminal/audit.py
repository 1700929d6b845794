"""The findings of an audit of baseline files, as text and as JSON."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import msgspec

from ddp_perf.render.units import counted, to_json
from ddp_perf.stats.audit.measured import CasesAudit
from ddp_perf.stats.plausibility import TableAudit


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    """The findings of all files: in their published tables, and in their measured cases."""

    tables: tuple[TableAudit, ...]
    measured: tuple[CasesAudit, ...]

    @property
    def contradictions(self) -> int:
        of_tables = sum(len(audit.contradictions) for audit in self.tables)
        return of_tables + sum(len(audit.contradictions) for audit in self.measured)


def audit_text(audit: Audit) -> str:
    """Return each table with its source and its contradictions, then the measured cases of each
    file.
    """
    lines = _of_tables(audit.tables)
    for measured in audit.measured:
        lines.append(f"{measured.file}: {counted(measured.cases, 'measured case')}")
        lines += [f"  {found}" for found in measured.contradictions]
    rows = sum(len(table.table.rows) for table in audit.tables)
    cases = sum(measured.cases for measured in audit.measured)
    counts = [(len(audit.tables), "table"), (rows, "row"), (cases, "measured case")]
    total = ", ".join(itertools.starmap(counted, counts))
    return "\n".join([*lines, f"{total}: {counted(audit.contradictions, 'contradiction')}"])


def _of_tables(audits: Sequence[TableAudit]) -> list[str]:
    lines = []
    for audit in audits:
        table = audit.table
        kind = "modelled" if table.modelled else "published"
        lines.append(f"{audit.file}: {table.name} ({kind}: {table.document}; {table.where})")
        lines += [f"  {found}" for found in audit.contradictions]
    return lines


def audit_json(audit: Audit) -> str:
    """Return the audit, field by field."""
    return to_json(audit)
