"""The versions of the distributions behind modules, and of what they need."""

from __future__ import annotations

import importlib.metadata

import pytest

from ddp_perf.system.packages import versions_behind


@pytest.fixture
def install(tmp_path, monkeypatch):
    """``install("One", "1.0", modules, needs)``: a distribution of its own."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def install(name, version, modules=(), needs=()):
        directory = tmp_path / f"{name.replace('-', '_')}-{version}.dist-info"
        directory.mkdir()
        lines = [
            "Metadata-Version: 2.1",
            f"Name: {name}",
            f"Version: {version}",
            *(f"Requires-Dist: {need}" for need in needs),
        ]
        (directory / "METADATA").write_text("\n".join(lines) + "\n", encoding="utf-8")
        (directory / "top_level.txt").write_text("\n".join(modules) + "\n", encoding="utf-8")
        return directory

    return install


def test_a_module_is_known_by_its_distribution_and_not_by_its_own_name(install):
    install("Own-Layers", "1.2", ["own_layers", "own_more"])

    assert versions_behind(["own_more"]) == {"own-layers": "1.2"}


def test_what_a_distribution_needs_counts_however_deep(install):
    install("own-a", "1", ["own_a"], needs=["Own.B>=1", "own_c; python_version >= '3'"])
    install("own-b", "2", [], needs=["own-d[fast]"])
    install("own-c", "3", [], needs=["own-a"])  # in a circle
    install("own-d", "4")
    install("own-e", "5", ["own_e"])

    found = versions_behind(["own_a"])

    assert found == {"own-a": "1", "own-b": "2", "own-c": "3", "own-d": "4"}
    assert list(found) == sorted(found)


@pytest.mark.parametrize(
    "need",
    [
        "own-b; extra == 'fast'",
        "own-b; python_version < '3'",
        "own-b; sys_platform == 'no system'",
        "own-missing",
        "not a requirement at all !",
    ],
)
def test_what_is_optional_or_not_there_does_not_count(install, need):
    install("own-a", "1", ["own_a"], needs=[need])
    install("own-b", "2", ["own_b"])

    assert versions_behind(["own_a"]) == {"own-a": "1"}


def test_modules_of_the_standard_library_and_unknown_ones_have_no_distribution():
    assert versions_behind(["os", "sys", "no_such_module_anywhere"]) == {}
    assert versions_behind([]) == {}


def test_two_distributions_of_one_module_both_count(install):
    install("own-a", "1", ["own_space"])
    install("own-b", "2", ["own_space"])

    assert versions_behind(["own_space"]) == {"own-a": "1", "own-b": "2"}


def test_a_broken_distribution_does_not_hide_the_others(install):
    """As a removal that was interrupted leaves it."""
    install("own-a", "1", ["own_a"], needs=["own-broken", "own-b"])
    install("own-b", "2")
    for name in ("own-broken", "own-rest"):
        (install(name, "9", ["own_a"]) / "METADATA").unlink()

    assert versions_behind(["own_a"]) == {"own-a": "1", "own-b": "2"}


def test_torch_is_found_as_it_is_installed():
    found = versions_behind(["torch"])

    assert found["torch"] == importlib.metadata.version("torch")
    assert "typing-extensions" in found
