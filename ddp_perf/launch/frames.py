"""Messages as marked lines, so that other programs may print on the same stream."""

from __future__ import annotations

import base64
import zlib

_MARK = "ddp-perf-outcome "
_MOST = 2**30  # bytes of a message: code that is measured can print one that unpacks to more


def framed(data: bytes) -> str:
    """Return the message as one line, without its end."""
    return _MARK + packed(data)


def is_framed(line: str) -> bool:
    """Return whether a message begins in the line."""
    return _MARK in line


def unframed(line: str) -> bytes | None:
    """Return the message in a line, maybe after other text; None: there is no whole one."""
    _, mark, text = line.partition(_MARK)
    if not mark:
        return None
    try:
        return unpacked(text.strip())
    except (ValueError, zlib.error):
        return None


def packed(data: bytes) -> str:
    """Return the data as a word that every shell leaves as it is."""
    return base64.b64encode(zlib.compress(data)).decode("ascii")


def unpacked(text: str) -> bytes:
    """Return the data. Raises ValueError or zlib.error if the text is none, or is too large."""
    stream = zlib.decompressobj()
    data = stream.decompress(base64.b64decode(text, validate=True), _MOST)
    if not stream.eof:
        raise ValueError("the message is cut, or too large")
    return data
