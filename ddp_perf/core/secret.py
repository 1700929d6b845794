"""Secrets, which must not reach a result, a report, an error or a command that is shown."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

_IN_AUTHORITY = re.compile(r"(://[^:/@\s]*):.*@")  # a password may contain "@", too
_IN_QUERY = re.compile(r"([?&]\w*(?:password|secret|token|api_?key)=)[^&#\s]*", re.IGNORECASE)
_NAMES = "PASSWORD|PASSWD|PASSPHRASE|SECRET|API_?KEY|ACCESS_?KEY"
_OF_VARIABLE = re.compile(rf"{_NAMES}|(^|_)(TOKEN|KEY)$", re.IGNORECASE)
# Narrower: a model has tokens, as in --pad-token, and what is sorted has keys.
_OF_OPTION = re.compile(
    rf"{_NAMES}|^TOKEN$|(^|_)(API|ACCESS|AUTH|BEARER|HF|HUB|WANDB)_TOKEN$", re.IGNORECASE
)
_NAME = r"[A-Za-z_-][\w.-]*"
_OF_PLACE = re.compile("_(FILE|PATH|DIR|SIZE)$", re.IGNORECASE)  # it only says where a secret is
# What a shell replaces, as $HF_TOKEN, is no secret. Of --env=NAME=VALUE the second name counts.
_ASSIGNED = re.compile(rf"(?<![\w.-])({_NAME})=(?!{_NAME}=[^=])(?![\"']?\$)[\"']?[^\s\"';]+")
_HIDDEN = "***"


def without_passwords(url: str) -> str:
    """Return the URL, or a text with one, with ``***`` in the place of each password."""
    return _IN_AUTHORITY.sub(rf"\1:{_HIDDEN}@", _IN_QUERY.sub(rf"\1{_HIDDEN}", url))


def public_address(url: str) -> str:
    """Return the URL without what may be a secret: its user, and its query. "" of no page."""
    match = re.match(r"(https?://)(?:[^/?#@]*@)?([^?#]+)", url)
    return f"{match[1]}{match[2]}" if match else ""


def is_secret_name(variable: str) -> bool:
    """Return whether an environment variable of this name usually has a secret."""
    return _OF_VARIABLE.search(variable) is not None and not _OF_PLACE.search(variable)


def without_secrets(words: Sequence[str]) -> Iterator[str]:
    """Yield the words of a command with ``***`` in the place of each secret.

    A secret is the value of an option or of a variable whose name says so, or is in a URL.
    """
    follows = False
    for word in words:
        is_value = follows and not word.startswith(("-", "$"))
        yield _HIDDEN if is_value else without_passwords(_ASSIGNED.sub(_assigned, word))
        follows = word.startswith("-") and "=" not in word and _is_secret_option(word)


def secret_in(words: Sequence[str]) -> str | None:
    """Return the first word of a command that has a secret, with ``***`` in its place."""
    before = ""
    for word, shown in zip(words, without_secrets(words), strict=True):
        if word != shown:
            return f"{before} {shown}" if shown == _HIDDEN else shown
        before = word
    return None


def _assigned(match: re.Match[str]) -> str:
    name = match[1].replace("-", "_")
    is_secret = is_secret_name(name) if name.isupper() else _is_secret_option(name)
    return f"{match[1]}={_HIDDEN}" if is_secret else match[0]


def _is_secret_option(name: str) -> bool:
    last = name.replace("-", "_").lstrip("_").rpartition(".")[2]
    return _OF_OPTION.search(last) is not None and not _OF_PLACE.search(last)
