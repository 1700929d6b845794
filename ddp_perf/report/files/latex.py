"""``summary_table.tex``: a tabular for ``\\input``, which needs no package."""

from __future__ import annotations

from collections.abc import Sequence

from ddp_perf.report.files.columns import COLUMNS
from ddp_perf.report.rows import CaseRow

_SPECIAL = {
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "{''}",
    "–": "--",
}


def summary_tex(rows: Sequence[CaseRow]) -> str:
    """Return the table. The first column is aligned to the left, the others to the right."""
    lines = [
        rf"\begin{{tabular}}{{l{'r' * (len(COLUMNS) - 1)}}}",
        r"\hline",
        _line([heading for heading, _ in COLUMNS]),
        r"\hline",
        *(_line([write(row) for _, write in COLUMNS]) for row in rows),
        r"\hline",
        r"\end{tabular}",
    ]
    return "\n".join(lines) + "\n"


def _line(cells: Sequence[str]) -> str:
    return " & ".join(map(latex_escaped, cells)) + r" \\"


def latex_escaped(text: str) -> str:
    """Return the text as LaTeX prints it. A character outside ASCII becomes its code point."""
    return "".join(
        _SPECIAL.get(sign) or (sign if " " <= sign < "\x7f" else _code(sign)) for sign in text
    )


def _code(sign: str) -> str:
    return f"U+{ord(sign):04X}"
