"""A terminal that keeps what is on its screen."""

from __future__ import annotations

import io
import re

_CONTROL = re.compile(r"\x1b\[\??([\d;]*)([A-Za-z])|([\r\n])|([^\x1b\r\n]+)")


class Screen(io.StringIO):
    """A stream that is a terminal. It heeds the control codes that move and erase lines."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True

    @property
    def lines(self) -> list[str]:
        """The lines on the screen, without the empty one that the cursor is in at the end."""
        lines, row, column = [""], 0, 0
        for count, code, move, text in _CONTROL.findall(self.getvalue()):
            if move == "\n":
                row, column = row + 1, 0
                lines += [""] * (row == len(lines))
            elif move == "\r":
                column = 0
            elif code == "A":
                row -= int(count or 1)
            elif code == "K":
                lines[row] = ""
            elif text:
                before = lines[row].ljust(column)
                lines[row] = before[:column] + text + before[column + len(text) :]
                column += len(text)
        while lines and not lines[-1].strip():
            lines.pop()
        return [line.rstrip() for line in lines]
