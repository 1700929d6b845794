"""The files of a project that a case reads."""

from __future__ import annotations

import pytest

from ddp_perf.config.loading import load_cases
from ddp_perf.config.overrides import Overrides
from ddp_perf.duel.sources import sources_of
from tests.projects import TINY


@pytest.mark.parametrize("data", ["layers: 3\n", "- suite\n", "suite: [\n", ""])
def test_a_yaml_beside_the_suite_is_another_suite_only_if_it_names_one(data, tmp_path):
    configs = tmp_path / "bench_configs"
    configs.mkdir()
    (configs / "tiny.yaml").write_text(TINY)
    (configs / "other.yml").write_text("suite: other\n")  # not loaded, and maybe broken
    (configs / "model.yaml").write_text(data)
    cases = load_cases([configs / "tiny.yaml"], Overrides())

    found = sources_of(cases, [configs / "tiny.yaml"], [str(tmp_path)], tmp_path)

    assert {case.suite for case in found.values()} == {"bench_configs/tiny.yaml"}
    assert {case.suites for case in found.values()} == {
        frozenset({"bench_configs/tiny.yaml", "bench_configs/other.yml"})
    }
