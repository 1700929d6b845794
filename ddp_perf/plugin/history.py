"""``--ddp-history``: each suite is appended as soon as it is judged, or its results kept beside."""

from __future__ import annotations

import contextlib
from pathlib import Path

from ddp_perf.errors import HistoryError
from ddp_perf.report.results import write_results
from ddp_perf.session.result import SuiteResult


class HistoryLog:
    """The history of one pytest session; does nothing where none was asked for.

    What talks to databases is imported where it is needed: collection need not pay for it.
    """

    def __init__(self, url: str | None, root: Path) -> None:
        self._url = url
        self._root = root
        self._refused: dict[str, SuiteResult] = {}
        self._why = ""
        self._appended = 0
        self.name = ""
        self.error: str | None = None  # what the session fails for

    def check(self) -> None:
        """Raises HistoryError where nothing could be appended: before anything is launched."""
        if self._url is not None:
            from ddp_perf.history.store import HistoryStore

            with contextlib.closing(HistoryStore(self._url)) as store:
                self.name = store.name
                store.check_writable()

    def append(self, result: SuiteResult) -> None:
        """The suite as it is judged now. A store that fails must not end the measurement."""
        if self._url is None:
            return
        from ddp_perf.history.store import HistoryStore
        from ddp_perf.session.recording import record_of

        try:
            with contextlib.closing(HistoryStore(self._url)) as store:
                store.append([record_of(result)])
            self._refused.pop(result.suite, None)
            self._appended += 1
        except HistoryError as error:
            self._refused[result.suite] = result
            self._why = str(error)

    def close(self) -> None:
        """Write what the store did not take to a file of its own."""
        if not self._refused:
            return
        results = list(self._refused.values())
        stamp = "".join(filter(str.isalnum, results[0].date.partition("+")[0]))
        path = self._root / "artifacts" / f"history-refused-{stamp}.json"
        try:
            path.parent.mkdir(exist_ok=True)
            write_results(path, results, complete=True)
            kept = f"kept: ddp-perf history import {path} --history {self.name} appends it"
        except OSError as error:
            kept = f"not kept either: {path} cannot be written: {error.strerror}"
        self.error = f"--ddp-history: {self._why}; what was measured is {kept}"

    def summary(self) -> str | None:
        """A line for the terminal; None where nothing was appended."""
        return f"appended to the history {self.name}" if self._appended else None
