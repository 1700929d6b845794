"""The options of a duel, and those that make no sense with it."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

# Options that must not be given, and why, or what to use instead.
_REFUSED = {
    "--save-baseline": "a duel stores nothing; leave one of them out",
    "--ddp-inject": "a duel slows no side on purpose; leave one of them out",
    "--ddp-audit": "a duel is judged by no baseline; leave one of them out",
    "--ddp-settle": "a duel decides by itself; leave one of them out",
    "--ddp-profile": "a duel traces nothing; leave one of them out",
    "--ddp-history": "a duel is no session of a history; leave one of them out",
    "--ddp-summary": "--ddp-report=DIR writes a page with all figures",
    "--ddp-machine": "a duel reads no baseline, so that it needs no pool; leave one of them out",
    "--ddp-launches": "a duel ends when it is decided; bound it with --ddp-budget",
    "--ddp-cluster": "a duel is of one machine; leave one of them out",
}
_FORKSERVER = "forkserver"


class Against(msgspec.Struct, frozen=True, kw_only=True):
    """The side that the tree is compared with, and the time for it."""

    side: str  # as typed
    budget_s: float | None  # None: that of the tier
    touched_only: bool  # leave out the cases that no changed file can touch


def add_against_options(group: pytest.OptionGroup) -> None:
    group.addoption(
        "--ddp-against",
        metavar="SIDE",
        help="judge each performance test by a duel of SIDE against the tree as it is, without"
        " baselines: launches of both alternate until it is decided. SIDE is a git revision,"
        " env:NAME=VALUE, python:PATH, torch==VERSION, or 'command: … {command}'",
    )
    group.addoption(
        "--ddp-touched",
        action="store_true",
        help="with --ddp-against REVISION: skip each case that no file that changed since then can"
        " touch, uncommitted changes included",
    )


def read_against(config: pytest.Config) -> Against | None:
    """Return the options of the duel, or None without one. Raises UsageError."""
    side, budget_s = config.getoption("ddp_against"), config.getoption("ddp_budget")
    touched_only = config.getoption("ddp_touched")
    if side is None:
        if touched_only:
            raise pytest.UsageError("--ddp-touched: needs --ddp-against SIDE")
        return None
    if budget_s == 0:
        raise pytest.UsageError(
            "--ddp-budget with --ddp-against: 0 is too little for any launch;"
            " give the duel a time, as in --ddp-budget=3m"
        )
    if not side.strip():
        raise pytest.UsageError("--ddp-against: name a side, as in --ddp-against origin/main")
    for problem in _refused(config):
        raise pytest.UsageError(problem)
    return Against(
        side=side,
        budget_s=budget_s,
        touched_only=touched_only,
    )


def _refused(config: pytest.Config) -> Iterator[str]:
    """Yield a line for each option that was given and makes no sense with a duel."""
    launcher = config.getoption("ddp_launcher")
    if launcher not in (None, _FORKSERVER):
        yield f"--ddp-against: a duel launches by {_FORKSERVER}; leave --ddp-launcher out"
    if config.getoption("numprocesses", None):
        yield "-n with --ddp-against: timed tests cannot run beside other tests; add -n0"
    for option, why in _REFUSED.items():
        if config.getoption(option):
            yield f"{option} with --ddp-against: {why}"
