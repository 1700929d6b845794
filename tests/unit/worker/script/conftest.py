"""Audit hooks that end with their test."""

from __future__ import annotations

import sys

import pytest

_hooks = []


def _call_hooks(event, arguments):
    for hook in _hooks:
        hook(event, arguments)


@pytest.fixture(scope="session")
def _dispatched():
    """Add one hook for all tests: Python removes none, and calls each whenever ``id()`` is."""
    sys.addaudithook(_call_hooks)


@pytest.fixture(autouse=True)
def _hooks_end_with_their_test(_dispatched, monkeypatch):
    monkeypatch.setattr(sys, "addaudithook", _hooks.append)
    yield
    _hooks.clear()
