"""Characters that a reader does not see, but a terminal, a browser or a job's log obeys."""

from __future__ import annotations

import re

_SIGN = "\N{REPLACEMENT CHARACTER}"
# Controls but line ends and tabs; and what turns the direction of a text, so that it reads as
# another one.
_UNSEEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
# What the log of a job takes for a command: GitHub at the beginning of a line, or anywhere in it.
_COMMAND = re.compile(r"^(?=[^\S\n]*::)|(?<=##)(?=(?:vso)?\[)", re.MULTILINE)


def visible(text: str) -> str:
    """Return the text with a sign in the place of each character that steers how it is shown."""
    return _UNSEEN.sub(_SIGN, text)


def printable(text: str) -> str:
    """Return what a terminal, or the log of a job, shows as it is: no line of it is a command."""
    return _COMMAND.sub(_SIGN, visible(text))
