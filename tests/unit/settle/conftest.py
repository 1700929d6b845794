"""A project in git whose sides are played, on a played clock."""

from __future__ import annotations

import functools
import os

import pytest

from ddp_perf.duel.run import DuelRequest
from ddp_perf.settle import settling
from tests.unit.duel.played_sides import Clock
from tests.unit.settle.settled_project import SettledProject


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


@pytest.fixture
def project(tmp_path, clock, monkeypatch):
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    in_one_order = functools.partial(DuelRequest, seed=1)
    monkeypatch.setattr(settling, "DuelRequest", in_one_order)
    return SettledProject(tmp_path, clock)
