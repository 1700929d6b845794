"""The files of a project that a case reads."""

from __future__ import annotations

import subprocess

import pytest

from ddp_perf.config.loading import Overrides, load_cases
from ddp_perf.core.subject import PACKAGES
from ddp_perf.duel import touched as sources_module
from ddp_perf.duel.touched import Project, packages_of, sources_of
from tests.builders import make_case
from tests.projects import TINY
from tests.unit.duel.script_cases import make_script_case


@pytest.mark.parametrize("data", ["layers: 3\n", "- suite\n", "suite: [\n", ""])
def test_a_yaml_beside_the_suite_is_another_suite_only_if_it_names_one(data, tmp_path):
    configs = tmp_path / "bench_configs"
    configs.mkdir()
    (configs / "tiny.yaml").write_text(TINY)
    (configs / "other.yml").write_text("suite: other\n")  # not loaded, and maybe broken
    (configs / "model.yaml").write_text(data)
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    suites = (configs / "tiny.yaml",)
    cases = load_cases(suites, Overrides())

    found = sources_of(cases, Project(root=tmp_path, suites=suites, import_paths=(str(tmp_path),)))

    assert {case.suite for case in found.values()} == {"bench_configs/tiny.yaml"}
    assert {case.suites for case in found.values()} == {
        frozenset({"bench_configs/tiny.yaml", "bench_configs/other.yml"})
    }


@pytest.fixture
def asked(monkeypatch):
    """Return the modules whose versions are asked for."""
    asked = []
    monkeypatch.setattr(
        sources_module, "versions_behind", lambda modules: asked.append(set(modules)) or {"x": "1"}
    )
    return asked


def packages(cases, root):
    return packages_of(cases, [str(root)], root)


def test_the_packages_of_every_rank_are_those_that_ranks_import(tmp_path, asked):
    assert packages([make_case()], tmp_path) == {"x": "1"}

    (modules,) = asked
    assert {"torch", "numpy"} <= modules
    assert not modules & {"pytest", "scipy"}


def test_a_workload_and_a_script_have_the_packages_that_their_files_import(tmp_path, asked):
    (tmp_path / "model.py").write_text("import layers, einops\n", encoding="utf-8")
    (tmp_path / "layers.py").write_text("import xformers.ops\n", encoding="utf-8")
    (tmp_path / "train.py").write_text("from datasets import load\n", encoding="utf-8")
    script = make_script_case(script="train.py")

    packages([make_case(workload="model:Build"), script], tmp_path)
    packages([make_case(workload="model:Build")], tmp_path)

    assert {"einops", "xformers", "datasets", "torch"} <= asked[0]
    assert asked[1] == asked[0] - {"datasets"}


@pytest.mark.parametrize("workload", PACKAGES)
def test_a_workload_that_needs_a_package_has_it(tmp_path, asked, workload):
    packages([make_case(workload=workload)], tmp_path)

    assert PACKAGES[workload] in asked[0]


def test_the_versions_are_real_ones(tmp_path):
    found = packages([make_case()], tmp_path)

    assert {"torch", "numpy"} <= found.keys()
    assert all(found.values())
