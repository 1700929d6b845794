"""What an audit of published figures found, for a person and for a program."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ddp_perf.stats.audit import TableAudit


def audit_text(audits: Sequence[TableAudit]) -> str:
    """Table by table: its source, then every contradiction with both figures."""
    lines = []
    for audit in audits:
        table = audit.table
        kind = "modelled" if table.modelled else "published"
        lines.append(f"{audit.file}: {table.name} ({kind}: {table.document}; {table.where})")
        lines += [f"  {found}" for found in audit.contradictions]
    rows = sum(len(audit.table.rows) for audit in audits)
    found = sum(len(audit.contradictions) for audit in audits)
    count = f"{found} contradiction{'s' if found != 1 else ''}"
    return "\n".join([*lines, f"{len(audits)} tables, {rows} rows: {count}"])


def audit_json(audits: Sequence[TableAudit]) -> str:
    """The same, field by field."""
    return msgspec.json.format(msgspec.json.encode(audits), indent=1).decode()
