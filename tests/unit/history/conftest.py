"""Fixtures of the history: every test of the store runs on both databases."""

from __future__ import annotations

import contextlib

import pytest

from ddp_perf.history.store import Database, HistoryStore
from tests.databases import KINDS, empty_database


@pytest.fixture(params=KINDS)
def url(request, tmp_path):
    with empty_database(request.param, tmp_path) as url:
        yield url


@pytest.fixture
def store(url):
    with contextlib.closing(HistoryStore(url)) as store:
        yield store


@pytest.fixture
def database(url):
    with contextlib.closing(Database(url, patience_s=5)) as database:
        yield database
