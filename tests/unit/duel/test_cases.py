"""The cases of both sides, matched by id."""

from __future__ import annotations

import msgspec
import pytest
import yaml

from ddp_perf.config.loading import Overrides
from ddp_perf.core.gpu import GpuMachine
from ddp_perf.duel.cases import match_cases
from ddp_perf.duel.open_sides import option_differences
from ddp_perf.errors import ConfigError, GpuError
from tests.builders import SUITE, make_capacity, make_scripts
from tests.unit.duel.played_sides import make_prepared
from tests.unit.duel.script_cases import SCRIPT_SUITE

CASES = ["mlp-none-fp32-ws1-b64", "mlp-ddp-fp32-ws2-b64"]


@pytest.fixture
def sides(tmp_path):
    """A function that writes the suites of both sides, and returns the sides."""

    def make(a, b, **changes_of_b):
        prepared = []
        for name, suites in (("A", a), ("B", b)):
            directory = tmp_path / name / "bench_configs"
            directory.mkdir(parents=True)
            for file, suite in suites.items():
                (directory / f"{file}.yaml").write_text(yaml.safe_dump(suite), encoding="utf-8")
            changes = changes_of_b if name == "B" else {}
            prepared.append(make_prepared(name, tmp_path / name, **changes))
        return prepared

    return make


def test_cases_are_read_from_each_side(sides):
    b = {**SUITE, "ddp": {"bucket_cap_mb": 5}, "steps": 99}

    found = match_cases(*sides({"quick": SUITE}, {"quick": b}), make_capacity())

    assert [case.id for case in found.cases] == CASES
    assert found.missing == ()
    several = found.cases[1]
    assert (several.a.training.ddp.bucket_cap_mb, several.b.training.ddp.bucket_cap_mb) == (25, 5)
    assert several.a.schedule.steps == several.b.schedule.steps == 99  # both are measured alike


def test_both_tiers_of_a_machine_with_a_broken_driver_are_refused_unless_one_is_named(sides):
    capacity = make_capacity(GpuMachine(gpus=(), problem="Driver/library version mismatch"))
    suites = {
        "quick": SUITE,
        "large": {**SUITE, "suite": "large", "variant": "large", "tier": "gpu"},
    }
    both = sides(suites, suites)

    with pytest.raises(GpuError, match="version mismatch"):
        match_cases(*both, capacity)
    assert [case.id for case in match_cases(*both, capacity, ids=CASES).cases] == CASES


def test_a_case_that_one_side_lacks_is_missing(sides):
    a, b = {**SUITE, "batch_sizes": [64, 32]}, {**SUITE, "batch_sizes": [64, 128]}

    found = match_cases(*sides({"quick": a}, {"quick": b}), make_capacity())

    assert [case.id for case in found.cases] == CASES
    reasons = {one.case_id: one.reason for one in found.missing}
    assert reasons["mlp-none-fp32-ws1-b128"] == "side A (the tree) has no such case"
    assert reasons["mlp-none-fp32-ws1-b32"] == "side B (the tree) has no such case"


def test_a_suite_of_side_a_that_is_refused_today_leaves_the_others(sides):
    old = {**SUITE, "suite": "old", "variant": "old"}
    a = {"quick": SUITE, "old": {**old, "wordl_sizes": [1]}}

    found = match_cases(*sides(a, {"quick": SUITE, "old": old}), make_capacity())

    assert [case.id for case in found.cases] == CASES
    assert len(found.missing) == 2
    assert "refused: bench_configs/old.yaml: wordl_sizes" in found.missing[0].reason


def test_a_suite_of_side_b_that_cannot_be_read_is_an_error(sides):
    with pytest.raises(ConfigError, match="wordl_sizes"):
        match_cases(*sides({"q": SUITE}, {"q": {**SUITE, "wordl_sizes": [1]}}), make_capacity())


def test_a_case_that_cannot_run_here_is_missing(sides):
    suite = {**SUITE, "world_sizes": [1, 4]}

    found = match_cases(*sides({"q": suite}, {"q": suite}), make_capacity(cores=2))

    assert [case.id for case in found.cases] == CASES[:1]
    assert "needs 4 cores" in found.missing[0].reason


def test_the_suites_of_this_machines_tier_are_compared(sides):
    gpu = {**SUITE, "suite": "big", "tier": "gpu", "variant": "big"}
    both = {"quick": SUITE, "big": gpu}

    found = match_cases(*sides(both, both), make_capacity())

    assert ([case.id for case in found.cases], found.missing) == (CASES, ())


def test_an_unknown_case_is_refused(sides):
    suites = {"quick": SUITE}

    with pytest.raises(ConfigError, match="no side has such a case; did you mean 'mlp-ddp"):
        match_cases(*sides(suites, suites), make_capacity(), ids=["mlp-ddp-fp32-ws2-b63"])


def test_an_emulated_case_is_refused_with_the_option_that_makes_it(sides):
    suites = {"quick": SUITE}

    with pytest.raises(ConfigError, match="such a case; add --emulate=64, and --network unless"):
        match_cases(*sides(suites, suites), make_capacity(), ids=["mlp-ddp-fp32-ws64-emulated-b64"])


def test_no_case_that_can_run_is_an_error(sides):
    gpu = {**SUITE, "tier": "gpu"}

    with pytest.raises(ConfigError, match=r"there is no case to compare: .* needs 1 CUDA device"):
        match_cases(*sides({"q": gpu}, {"q": gpu}), make_capacity())


def test_no_case_that_can_be_emulated_is_an_error(sides):
    shared = {"q": {**SUITE, "batch_sizes": {"global": [32]}}}
    of_64 = Overrides(emulated=(64,), network="intra=1GB/s")

    with pytest.raises(ConfigError, match="--emulate needs a suite with collectives, and batches"):
        match_cases(*sides(shared, shared), make_capacity(), overrides=of_64)


def test_the_variables_of_a_side_are_those_of_its_cases(sides):
    suites = {"quick": SUITE}
    a, b = sides(suites, suites, variables={"OMP_NUM_THREADS": "2"})

    found = match_cases(a, b, make_capacity(cores=8))

    assert [case.b.threads_per_rank for case in found.cases] == [2, 2]
    assert [case.a.threads_per_rank for case in found.cases] == [1, 1]


def test_a_workload_is_looked_for_in_the_added_paths_of_each_side(sides, tmp_path):
    suite = {**SUITE, "workload": "only_in_src:build", "model": {}}
    a, b = sides({"quick": suite}, {"quick": suite})
    both = []
    for side in (a, b):
        source = side.root / "src"
        source.mkdir()
        (source / "only_in_src.py").write_text("def build(context): ...\n")
        both.append(msgspec.structs.replace(side, added_paths=(str(source),)))

    assert len(match_cases(*both, make_capacity()).cases) == 2
    with pytest.raises(ConfigError, match="only_in_src"):
        match_cases(a, b, make_capacity())


def test_a_side_without_the_script_lacks_the_case_also_if_the_tree_has_it(
    sides, tmp_path, monkeypatch
):
    a, b = sides({"q": SUITE, "mine": SCRIPT_SUITE}, {"q": SUITE, "mine": SCRIPT_SUITE})
    (b.root / "train.py").touch()
    monkeypatch.chdir(b.root)

    found = match_cases(a, b, make_capacity())

    assert [case.id for case in found.cases] == CASES
    (missing,) = found.missing
    assert missing.case_id == "train-ws1-b64"
    assert missing.reason.startswith(
        "side A (the tree) has no such case; refused: bench_configs/mine.yaml: script: there is no"
        " file train.py in the tree;"
    )
    with pytest.raises(ConfigError, match=r"script: there is no file train.py in .*A;"):
        match_cases(b, a, make_capacity())


def test_a_replaced_variable_is_the_work_of_its_case():
    case = make_scripts(env={"DEVICES": "{world_size}"})[1]
    replaced = msgspec.structs.replace(case, env={"DEVICES": "1"})

    assert replaced.work() == {**case.work(), "env.DEVICES": "1"} != case.work()


def test_other_arguments_are_a_change_of_the_case(sides):
    a, b = sides(
        {"q": SCRIPT_SUITE}, {"q": {**SCRIPT_SUITE, "args": ["--b", "{batch_size}", "-v"]}}
    )
    for side in (a, b):
        (side.root / "train.py").touch()

    (case,) = match_cases(a, b, make_capacity()).cases

    assert option_differences(case, a, b) == ("args: --batch-size 64 → --b 64 -v",)
