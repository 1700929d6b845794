"""A project in a git repository, and a cache of its own for each test."""

from __future__ import annotations

import os

import pytest

from tests.repositories import Repository


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """The directory of the cache; git has no settings of the user."""
    directory = tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(directory))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    return directory / "ddp-perf"


@pytest.fixture
def project(tmp_path):
    return Repository(tmp_path / "project")
