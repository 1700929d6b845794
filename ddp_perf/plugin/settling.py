"""The code that a pytest session remembers, and its second stage."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from ddp_perf.plugin.options import Options
from ddp_perf.plugin.plan import Setup
from ddp_perf.session.measure.code import SessionCode
from ddp_perf.system.code_state import CodeState, read_code_state

if TYPE_CHECKING:
    from ddp_perf.session.audit.draw import HiddenSlowDown
    from ddp_perf.session.measure.second_stage import Settle
    from ddp_perf.settle.settling import SettleRequest

_SQLITE = "sqlite:///"


def session_code(config: pytest.Config, options: Options) -> SessionCode:
    """Return today's code, without the files that the session itself writes."""
    from ddp_perf.duel.sources import packages_of

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
    named = [
        options.baseline_directory,
        options.report,
        options.json_path,
        Path(history.removeprefix(_SQLITE)) if history.startswith(_SQLITE) else None,
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
        budget_s=options.settle_s,
        false_alarm_rate=options.false_alarm_rate,
        cases=cases,
        state=code.state,
        overrides=options.overrides,
        injections=options.injections,
    )
    return Settling(
        request if audited is None else _blind(request, audited),
        setup.project,
        setup.store,
        setup.capacity,
        say=setup.progress.say,
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
