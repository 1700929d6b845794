"""Secrets, which must not reach a result, a report or a command that is shown."""

from __future__ import annotations

import re

_IN_AUTHORITY = re.compile(r"(://[^:/@\s]*):.*@")  # a password may contain "@", too
_IN_QUERY = re.compile(r"([?&]\w*password=)[^&#\s]*", re.IGNORECASE)
_SECRET_NAME = re.compile(
    r"PASSWORD|PASSWD|PASSPHRASE|SECRET|API_?KEY|(^|_)(TOKEN|KEY)$", re.IGNORECASE
)


def without_passwords(url: str) -> str:
    """Return the URL, or a text with one, with ``***`` in the place of each password."""
    return _IN_AUTHORITY.sub(r"\1:***@", _IN_QUERY.sub(r"\1***", url))


def is_secret_name(variable: str) -> bool:
    """Return whether an environment variable of this name usually has a secret."""
    return _SECRET_NAME.search(variable) is not None
