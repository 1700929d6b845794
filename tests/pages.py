"""A page as the text that its reader sees, without what scripts draw."""

from __future__ import annotations

import re
from html.parser import HTMLParser

_HIDDEN = {"script", "style", "title"}
_STARTS = {"h1": "# ", "h2": "## ", "summary": "### ", "figcaption": "[chart] ", "li": "- "}
_LINES = {*_STARTS, "p", "div", "pre", "tr", "br", "span", "figure", "footer"}
_CELLS = {"td", "th"}


class _Text(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []
        self._hidden: list[str] = []
        self._verbatim = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = dict(attrs)
        if tag in _HIDDEN or "popover" in known or known.get("class") == "what":
            self._hidden.append(tag)
        elif tag in _LINES:
            self.parts.append(f"\n{_STARTS.get(tag, '')}")
        self._verbatim = self._verbatim or tag == "pre"

    def handle_endtag(self, tag: str) -> None:
        if self._hidden and tag == self._hidden[-1]:
            self._hidden.pop()
        elif tag in _CELLS:
            self.parts.append(" | ")
        elif tag in _LINES:
            self.parts.append("\n")
        self._verbatim = self._verbatim and tag != "pre"

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.parts.append(data if self._verbatim else data.replace("\n", " "))


def page_text(page: bytes) -> str:
    """Return headings, tables, sentences, and the captions of charts, each on its line."""
    parser = _Text()
    parser.feed(page.decode())
    text = "".join(parser.parts).replace("\u00a0", " ").replace("\u00ad", "")
    lines = (" ".join(re.split(r"(?<=\S) +", line)).strip(" |") for line in text.split("\n"))
    return "\n".join(line for line in lines if line) + "\n"
