"""The owner of a source file."""

from __future__ import annotations

import importlib

import pytest

from ddp_perf.worker.counting.sites import Origin, origin_of, own_package


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A directory of installed packages, from which modules are imported."""
    directory = tmp_path / "site-packages"
    (directory / "their_package" / "models").mkdir(parents=True)
    (directory / "their_package" / "__init__.py").touch()
    (directory / "their_single.py").touch()
    monkeypatch.syspath_prepend(str(directory))
    importlib.invalidate_caches()
    return directory


@pytest.mark.parametrize(
    ("module", "file"),
    [
        ("their_package.models.net", "their_package/models/net.py"),
        ("their_single", "their_single.py"),
    ],
)
def test_the_workloads_own_package_is_the_users_also_where_it_is_installed(
    installed, module, file, monkeypatch
):
    monkeypatch.setattr("ddp_perf.worker.counting.sites._own", set())
    path = str(installed / file)
    assert origin_of(path) is Origin.LIBRARY

    own_package(module)

    assert origin_of(path) is Origin.USER
    assert origin_of(str(installed / "other.py")) is Origin.LIBRARY
    origin_of.cache_clear()
