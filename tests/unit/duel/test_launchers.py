"""The launcher of each kind of side. Nothing starts before it is asked."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from ddp_perf.duel.open_sides import side_launcher
from ddp_perf.duel.values import PreparedSide, Side
from ddp_perf.errors import LaunchError


def prepared(**changes):
    side = Side(name="A", spec="main", kind="revision", label="main")
    fields = {"root": Path("/x"), "interpreter": "/no/such/python", "environ": {}}
    return PreparedSide(side=side, package=Path("/x"), **{**fields, **changes})


@pytest.mark.parametrize(
    ("side", "why"),
    [
        (prepared(), r"the forkserver \(/no/such/python\) cannot be started"),
        (prepared(command="/no/such/docker {command}"), "cannot be started: No such"),
    ],
    ids=["interpreter", "command"],
)
def test_ranks_run_in_the_side(side, why):
    with contextlib.closing(side_launcher(side)) as launcher, pytest.raises(LaunchError, match=why):
        launcher.runtime()
