"""The audit that ends a session: its launches, and the line about it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import pytest

from ddp_perf.core.gate_audit import GateAudit
from ddp_perf.session.result import SuiteResult

if TYPE_CHECKING:
    from ddp_perf.session.audit.draw import HiddenSlowDown

_NAME = "audit of the gate"


def audit_session(
    results: Sequence[SuiteResult],
    *,
    launch: Callable[[HiddenSlowDown], GateAudit],
    keep: Callable[[GateAudit], None],
    say: Callable[[str], None],
) -> str:
    """Run the audit of a session, and return a line about it. It has no error of the session.

    An interrupt ends the audit alone: the session is measured, and has its own end.
    """
    # Imported here: judging needs scipy, a third of a second that collection can do without.
    from ddp_perf.history.audits import audit_sentence
    from ddp_perf.session.audit.draw import draw_slow_down

    try:
        hidden = draw_slow_down(results)
        if hidden is None:
            return f"{_NAME}: none, because no case is compared with sessions and unchanged"
        say(f"{_NAME}: {hidden.case.id} once more, slowed by a hidden size or not at all")
        audit = launch(hidden)
        keep(audit)
    except (KeyboardInterrupt, pytest.exit.Exception):
        return f"{_NAME}: interrupted, so nothing of it is kept"
    except Exception as error:  # noqa: BLE001 – whatever it is, the session was measured before
        return f"{_NAME}: failed, so nothing of it is kept: {_one_line(error)}"
    return audit_sentence(audit)


def _one_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
