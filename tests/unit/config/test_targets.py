"""The targets of a suite file: which cases have which, and what is refused with the remedy."""

from __future__ import annotations

import pytest

from ddp_perf.config.loading import Overrides, load_cases
from ddp_perf.core.target import targets_on
from tests.unit.config.refusals import refusal

KEY = "v100-sxm2-16gb"


@pytest.fixture
def targets_of(suite_file):
    """``targets_of(targets, **suite)`` returns the bounds by case size and figure, on a V100."""

    def of(targets, key=KEY, **suite):
        cases = load_cases([suite_file(targets=targets, **suite)], Overrides())
        return {
            (case.world_size, case.batch_size): {
                target.figure: target.bound for target in targets_on(key, case.targets).values()
            }
            for case in cases
        }

    return of


def test_one_mapping_is_for_every_case_that_has_the_figure(targets_of):
    found = targets_of({"efficiency": ">= 0.85", "throughput": ">= 1,150/rank"})

    assert found == {
        (1, 64): {"throughput": 1150},
        (2, 64): {"efficiency": 0.85, "throughput": 1150},
    }


def test_a_list_has_entries_with_selectors(targets_of):
    found = targets_of(
        [
            {"step_time": "<= 120 ms", "world_sizes": [2]},
            {"peak_memory": "<= 14 GB", "batch_sizes": [32]},
            {"throughput": ">= 9", "accelerators": ["V100*", "h200"]},
            {"throughput": ">= 7", "accelerators": ["a100*"]},
        ],
        batch_sizes=[32, 64],
    )

    assert found == {
        (1, 32): {"peak_memory": 14e9, "throughput": 9},
        (2, 32): {"step_time": 0.12, "peak_memory": 14e9, "throughput": 9},
        (1, 64): {"throughput": 9},
        (2, 64): {"step_time": 0.12, "throughput": 9},
    }


def test_the_first_entry_that_fits_sets_the_target(targets_of):
    entries = [
        {"throughput": ">= 9", "accelerators": ["v100*"]},
        {"throughput": ">= 5", "world_sizes": [2]},
        {"throughput": ">= 3"},
    ]

    assert targets_of(entries) == {(1, 64): {"throughput": 9}, (2, 64): {"throughput": 9}}
    assert targets_of(entries, key="t4") == {(1, 64): {"throughput": 3}, (2, 64): {"throughput": 5}}


@pytest.mark.parametrize(
    ("figure", "text", "bound"),
    [
        ("efficiency", ">=85 %", 0.85),
        ("exposed_communication", "<= 0.15", 0.15),
        ("step_time", "<= 2 s", 2.0),
        ("step_time", "<= 250 us", 250e-6),
        ("peak_memory", "<= 14 GiB", 14 * 2**30),
        ("peak_memory", "<= 500 MB", 5e8),
    ],
)
def test_a_bound_has_its_units(targets_of, figure, text, bound):
    assert targets_of({figure: text})[2, 64] == {figure: pytest.approx(bound)}


def test_a_collective_has_a_bus_bandwidth(collectives_suite):
    path = collectives_suite(targets={"busbw": ">= 11 GB/s"})

    for case in load_cases([path], Overrides()):
        (target,) = case.targets
        assert (target.metric, target.bound, target.file) == ("target:busbw", 11e9, str(path))


def test_a_target_is_no_part_of_the_work(suite_file):
    without, with_target = (
        load_cases([suite_file(targets=targets)], Overrides())
        for targets in ([], {"throughput": ">= 5"})
    )

    assert [case.work() for case in without] == [case.work() for case in with_target]
    assert [case.id for case in without] == [case.id for case in with_target]


def test_the_file_is_named_from_the_current_directory_on(suite_file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (case, *_) = load_cases([suite_file(targets={"throughput": ">= 5"})], Overrides())

    assert case.targets[0].file == "suite.yaml"


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        ({"eficiency": ">= 0.85"}, "targets.eficiency: unknown field; did you mean 'efficiency'?"),
        (
            [{"throughput": ">= 5"}, {"trougput": ">= 5"}],
            "targets[1].trougput: unknown field; did you mean 'throughput'?",
        ),
        (
            {"efficiency": 0.85},
            "targets.efficiency: expected a text or nothing, got a number; write it as in"
            ' ">= 0.85"',
        ),
        (
            {"efficiency": "0.85"},
            "targets.efficiency: '0.85' is no bound; write it as in \">= 0.85\"",
        ),
        (
            [{"efficiency": "<= 0.85"}],
            "targets[0].efficiency: <= is no target, as higher is better; write >=",
        ),
        (
            {"step_time": ">= 120 ms"},
            "targets.step_time: >= is no target, as lower is better; write <=",
        ),
        (
            {"step_time": "<= 120"},
            'targets.step_time: it needs a unit, ms, s, us; write it as in "<= 120 ms"',
        ),
        (
            {"peak_memory": "<= 14 Gb"},
            "targets.peak_memory: 'Gb' is not one of its units, GB, GiB, MB, MiB; write it as in"
            ' "<= 14 GB"',
        ),
        (
            {"efficiency": ">= 85"},
            "targets.efficiency: '>= 85' is not a share between 0 and 1; write it as in"
            ' ">= 0.85"',
        ),
        (
            {"exposed_communication": "<= 100 %"},
            "targets.exposed_communication: '<= 100 %' is not a share between 0 and 1; write it as",
        ),
        (
            {"throughput": ">= 0"},
            "targets.throughput: '>= 0' is not above 0; write it as in \">= 1150/rank\"",
        ),
        (
            {"throughput": ">= 5", "world_sizes": [4]},
            "targets.world_sizes: the suite's cases have 1, 2, and not 4",
        ),
        (
            {"efficiency": ">= 0.8", "world_sizes": [1]},
            "targets.efficiency: the entry selects no case that has it (one rank has no efficiency",
        ),
        (
            [{"throughput": ">= 5"}, {"throughput": ">= 6", "world_sizes": [2]}],
            "targets[1].throughput: earlier entries set it for each of these cases, and the first"
            " one that fits applies; remove one, or write the more specific one first",
        ),
        ({"mfu": ">= 0.35"}, "targets.mfu: no peak of a CPU is known; remove it from tier cpu"),
        ({"busbw": ">= 1 GB/s"}, "targets.busbw: only collectives have a bus bandwidth; remove it"),
        ({"world_sizes": [2]}, "targets: no figure has a bound; give one of efficiency, exposed"),
    ],
)
def test_what_cannot_be_judged_is_refused_with_field_and_remedy(suite_file, targets, message):
    assert refusal(suite_file(targets=targets)).startswith(message)


def test_a_script_has_no_target_of_mfu(script_suite):
    path = script_suite(tier="gpu", targets=[{"throughput": ">= 5"}, {"mfu": ">= 0.35"}])

    assert refusal(path) == (
        "targets[1].mfu: a script chooses its precision, so its peak is unknown; remove it"
    )


def test_efficiency_needs_one_rank_and_fsdp_on_a_gpu_hides_its_communication(suite_file):
    assert refusal(suite_file(targets={"efficiency": ">= 0.8"}, world_sizes=[2])) == (
        "targets.efficiency: it compares with one rank; add 1 to world_sizes"
    )
    assert "FSDP on a GPU hides it" in refusal(
        suite_file(targets={"exposed_communication": "<= 0.15"}, tier="gpu", strategy="fsdp")
    )
