"""A table as LaTeX: a tabular for ``\\input``, which needs no package."""

from __future__ import annotations

from collections.abc import Sequence

from ddp_perf.render.model import COMMENT, SOFT_HYPHEN, Table

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


def table_latex(table: Table) -> str:
    """Return the columns of a wide medium as a tabular, with figures aligned to the right."""
    table = table.of_columns([at for at, one in enumerate(table.columns) if one.media in COMMENT])
    lines = [
        rf"\begin{{tabular}}{{{''.join('l' if one.words else 'r' for one in table.columns)}}}",
        r"\hline",
        _line([column.title.replace(SOFT_HYPHEN, "") for column in table.columns]),
        r"\hline",
        *(_line([cell.text for cell in row]) for row in table.rows),
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
