"""Errors that a user can mend: each says what, where and the remedy in one or two lines."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class DdpPerfError(Exception):
    """Base of every error whose text is meant for the user, without a traceback."""


class ConfigError(DdpPerfError):
    """A suite file, or an option that overrides it, that cannot be run as written."""


class DataError(DdpPerfError):
    """A file of training data that cannot be read as what it should be."""


class BaselineError(DdpPerfError):
    """A baseline file that cannot be read, or a baseline that must not be saved."""


class ResultsError(DdpPerfError):
    """A results file that cannot be read, or not be compared with another."""


class HistoryError(DdpPerfError):
    """A history that cannot be opened, read or written, or that lacks what was asked of it."""


class CollectiveError(DdpPerfError):
    """A collective that gave another result than arithmetic does."""


class TraceError(DdpPerfError):
    """A profiler's trace that cannot be read, or holds nothing that can be analysed."""


class LaunchError(DdpPerfError):
    """The machinery that starts ranks failed, before any rank of the case ran."""


class LeaseError(DdpPerfError):
    """The machine is being measured by somebody else."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``; did you mean 'x'?`` for the nearest known name, or nothing."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
