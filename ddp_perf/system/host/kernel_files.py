"""Files of /proc and /sys, which may be missing, unreadable or not counted."""

from __future__ import annotations

from pathlib import Path


def text_of(path: Path) -> str | None:
    """Return the text of a file, stripped, or None if the kernel does not give it.

    The kernel cuts names by bytes, so they may end within a character.
    """
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def number_of(path: Path) -> int | None:
    """Return the number that a file contains, or None if there is none, as in ``<unknown>``."""
    try:
        return int(text_of(path) or "")
    except ValueError:
        return None
