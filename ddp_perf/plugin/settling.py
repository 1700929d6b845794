"""Additions of a pytest session to its measurement: the second stage, the audit, each node."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from ddp_perf.core.case import Case
from ddp_perf.core.verdict import GateAudit
from ddp_perf.errors import ConfigError, LaunchError
from ddp_perf.plugin.options import Options
from ddp_perf.plugin.plan import Setup
from ddp_perf.session.measure.rounds import SessionCode
from ddp_perf.session.result import SuiteResult
from ddp_perf.system.git import CodeState, read_code_state

if TYPE_CHECKING:
    from ddp_perf.session.gate_audit import HiddenSlowDown
    from ddp_perf.session.measure.storable import Settle
    from ddp_perf.settle.settling import SettleRequest


# The code that a pytest session remembers, and its second stage.


_SQLITE = "sqlite:///"


def session_code(config: pytest.Config, options: Options) -> SessionCode:
    """Return today's code, without the files that the session itself writes."""
    from ddp_perf.duel.touched import packages_of

    found = read_code_state(config.rootpath, _written(config, options))
    return SessionCode(
        state=found if isinstance(found, CodeState) else None,
        problem=found.problem if isinstance(found, CodeState) else found,
        packages=functools.partial(
            packages_of, import_paths=options.import_paths, repository=config.rootpath
        ),
    )


def _written(config: pytest.Config, options: Options) -> list[Path]:
    """Return the files and directories that this session may write."""
    history = options.history or ""
    database = history.removeprefix(_SQLITE) if history.startswith(_SQLITE) else None
    named = [
        options.baseline_directory,
        options.report,
        options.json_path,
        database,
        database and f"{database}-journal",  # of a session that was killed
        *map(config.getoption, ("xmlpath", "benchmark_storage"), (None, None)),
    ]
    names = [str(one).removeprefix("file://") for one in named if one]
    return [config.rootpath / name for name in ("artifacts", *names)]


def make_settling(
    setup: Setup, code: SessionCode, *, cases: int, audited: HiddenSlowDown | None = None
) -> Settle | None:
    """Return the second stage of a session of so many cases; None where nodes are compared.

    That of ``audited`` is for its case alone, and has as much time.
    """
    options = setup.options
    if options.cluster.each_node:
        return None
    # Imported here: judging needs scipy, a third of a second that collection can do without.
    from ddp_perf.settle.settling import SettleRequest, Settling

    request = SettleRequest(
        project=setup.project,
        store=setup.store,
        capacity=setup.capacity,
        budget_s=options.settle_s,
        false_alarm_rate=options.false_alarm_rate,
        cases=cases,
        state=code.state,
        overrides=options.overrides,
        injections=options.injections,
    )
    return Settling(
        request if audited is None else _blind(request, audited), say=setup.progress.say
    )


def _blind(request: SettleRequest, audited: HiddenSlowDown) -> SettleRequest:
    """Return the request for one case, with its share of the session's error rate."""
    return msgspec.structs.replace(
        request,
        cases=1,
        false_alarm_rate=request.false_alarm_rate / max(1, request.cases),
        injections=audited.injections,
        blind=True,
    )


# The audit that ends a session: its launches, and the line about it.


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
    from ddp_perf.history.text import audit_sentence
    from ddp_perf.session.gate_audit import draw_slow_down

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


# The conditions of each_node in a cluster file, which are checked before the first launch.


def check_pool(pool: str | None, cases: Sequence[Case]) -> None:
    """Refuse cases of the CPU tier without the name that the baseline of all nodes has.

    A baseline of GPUs is that of their type, which all nodes share. Raises ConfigError.
    """
    if pool is None and any(case.tier == "cpu" for case in cases):
        raise ConfigError(
            "each_node: the nodes share one baseline; name it with --ddp-machine NAME"
        )


def check_nodes(nodes: Sequence[str]) -> None:
    """Refuse a launcher that cannot send a launch to one of several nodes. Raises LaunchError."""
    if len(nodes) < 2:
        found = f"{nodes[0]} alone" if nodes else "this machine alone"
        raise LaunchError(
            f"each_node: the launcher has {found}; give it two nodes or more, as with launcher:"
            " ssh and hosts: [a, b]"
        )
