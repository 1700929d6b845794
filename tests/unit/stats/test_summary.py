"""The figures of one launch: the last rank decides, and throughput contains every stall."""

from __future__ import annotations

import statistics
from itertools import pairwise
from random import Random

import msgspec
import numpy as np
import pytest

from ddp_perf.core.launch import RankConditions, WarmUp
from ddp_perf.stats import launch_level
from ddp_perf.stats.summary import summaries_of, summarise, summarise_all
from tests.builders import (
    make_case,
    make_cases,
    make_launch,
    make_measurement,
    make_rank_result,
)

ONE, TWO = make_cases()


def launch_of(*ranks):
    """Return a launch whose ranks took these steps."""
    results = tuple(make_rank_result(rank, **fields) for rank, fields in enumerate(ranks))
    return msgspec.structs.replace(make_launch(make_case()), ranks=results)


def test_a_step_lasts_until_the_last_rank_is_through():
    """The second rank is through after 0.3 s, the first one after 0.5 s and 0.7 s."""
    launch = launch_of({"step_s": (0.1, 0.4, 0.2)}, {"step_s": (0.3, 0.1, 0.2)})

    assert launch.step_s == [0.3, 0.2, 0.2]


def test_ranks_count_from_the_barrier_before_the_warm_up():
    """The second rank is 0.2 s late there, and catches up."""
    launch = launch_of(
        {"warmup_s": (0.1, 0.1), "step_s": (0.4, 0.2)},
        {"warmup_s": (0.1, 0.3), "step_s": (0.2, 0.2)},
    )

    assert launch.step_s == [0.2, 0.2]


def test_ranks_begin_together_in_each_loop():
    """What a rank was late at the end of a loop is over at the next barrier."""
    late = {"step_s": (0.1, 0.3, 0.1, 0.1, 0.1), "loops": (2, 3)}
    launch = launch_of(late, {"step_s": (0.1, 0.1, 0.2, 0.2, 0.1), "loops": (2, 3)})

    assert launch.step_s == [0.1, 0.3, 0.2, 0.2, 0.1]


@pytest.mark.parametrize("ranks", [1, 2, 8])
def test_jitter_of_the_boundaries_makes_no_step_of_several_ranks_longer(ranks):
    """The longest step of 8 ranks was 2 % too long if their boundaries vary by 1 % of a step."""
    random = Random(1)
    ends = [
        [0.01 * (step + 1 + random.gauss(0, 0.01)) for step in range(400)] for _ in range(ranks)
    ]
    each = [tuple(end - begin for begin, end in pairwise((0.0, *of_rank))) for of_rank in ends]

    launch = launch_of(*({"warmup_s": (), "step_s": steps} for steps in each))

    longest = statistics.fmean(map(max, zip(*each, strict=True)))
    assert longest == pytest.approx(0.01 * {1: 1.0, 2: 1.008, 8: 1.019}[ranks], rel=0.002)
    assert statistics.fmean(launch.step_s) == pytest.approx(0.01, rel=0.0005)
    assert statistics.median(launch.step_s) == pytest.approx(0.01, rel=0.002)
    assert sum(launch.step_s) == pytest.approx(max(map(sum, each)), abs=1e-6)


def test_ranks_with_different_numbers_of_steps_are_an_error():
    launch = launch_of({"step_s": (0.1, 0.1)}, {"step_s": (0.1,)})

    with pytest.raises(ValueError, match="shorter"):
        _ = launch.step_s


def test_a_stall_shows_in_mean_tail_and_throughput_but_not_in_level_and_typical_step():
    steps = (0.01,) * 9 + (0.11,)

    row = summarise(launch_of({"step_s": steps}), samples_per_step=100, single=None)

    assert row.values["step_time"] == pytest.approx(0.01)
    assert row.typical_step_s == pytest.approx(0.01)
    assert row.mean_step_s == pytest.approx(0.02)
    assert row.values["tail"] == pytest.approx(2.0)
    assert row.throughput == pytest.approx(100 * 10 / 0.2)


def figures_of(*ranks, single=None):
    return summarise(launch_of(*ranks), samples_per_step=100, single=single).values


def repeated(*factors, times=6):
    """Return steps of 10 ms times these factors, again and again."""
    return tuple(0.010 * factor for factor in factors) * times


@pytest.mark.parametrize(
    ("steps", "tail"),
    [
        (repeated(1, 1, 1.3, times=20), 1.1),  # 1 + 0.3 ÷ 3
        (repeated(*[1] * 9, 5), 1.4),  # 1 + 4 ÷ 10
        (repeated(1, 1.5, times=30), 1.25),
    ],
    ids=["every third step 30 % slower", "each tenth step stalled", "two modes"],
)
def test_steps_that_are_slow_now_and_then_leave_the_level_and_raise_the_tail(steps, tail):
    even = figures_of({"step_s": repeated(1, times=60)})

    found = figures_of({"step_s": steps})

    assert even["tail"] == pytest.approx(1.0)
    assert found["step_time"] == pytest.approx(even["step_time"], rel=0.001)
    assert found["tail"] == pytest.approx(tail, rel=0.001)


WAITING = {  # of 60 steps each third one waits for a core, and takes twice as long
    "step_s": repeated(1, 1, 2, times=20),
    "waited_s": (0.0, 0.0, 0.010) * 20,
}


@pytest.mark.parametrize("foreign", [None, 0.0, 0.4])
def test_the_tail_contains_every_step_also_those_that_waited(foreign):
    """The level leaves them out."""
    busy = {**WAITING, "conditions": RankConditions(foreign=foreign)}

    values = figures_of({"step_s": repeated(1, times=60), "waited_s": (0.0,) * 60}, busy)

    assert values["step_time"] == pytest.approx(0.010)
    assert values["tail"] == pytest.approx(4 / 3)


def test_the_level_leaves_out_steps_in_which_any_rank_waited():
    """The first rank is the last one through after the first step of all."""
    uneven = {"step_s": repeated(1, 1.2, 1.1, times=20), "waited_s": (0.0,) * 60}
    first = (0.010, 0.0, 0.0) * 20

    values = figures_of(uneven, {"step_s": repeated(1.1, 1, 0.1, times=20), "waited_s": first})

    # Without each third step: 1.2 and 1.1. The first rank is 0.1 late before its first 1.2.
    assert values["step_time"] == pytest.approx(launch_level([0.011] * 2 + [0.012, 0.011] * 19))


def test_the_level_of_ranks_that_use_up_their_quota_is_that_of_all_steps():
    """It makes them wait in their slow steps and in their fast ones: it is a part of their cost."""
    steps = repeated(1, 1.2, 1.1, times=20)
    held_back = {
        "step_s": steps,
        "waited_s": (0.010, 0.0, 0.0) * 20,
        "conditions": RankConditions(own_quota=0.1),
    }

    assert figures_of(held_back)["step_time"] == pytest.approx(launch_level(steps))


def test_efficiency_compares_levels():
    single = make_launch(ONE, step_s=repeated(1, 1, 3, times=20))

    values = figures_of({"step_s": repeated(1.5, 1.5, 2, times=20)}, single=single)

    assert values["efficiency"] == pytest.approx(1.5, rel=0.001)


def test_the_cpu_time_is_the_level_of_the_busiest_rank():
    light, heavy = repeated(1, 5, times=6), repeated(2, 3, times=6)

    values = figures_of({"cpu_s": light}, {"cpu_s": heavy})

    assert values["cpu_time"] == pytest.approx(launch_level(heavy))
    assert launch_level(light) < launch_level(heavy)


def test_the_cpu_time_of_disturbed_steps_counts():
    """A wait is no part of it."""
    cpu_s = repeated(1, 1, 0.5, times=20)

    assert figures_of({**WAITING, "cpu_s": cpu_s})["cpu_time"] == pytest.approx(launch_level(cpu_s))


@pytest.mark.parametrize(
    "cpu_s",
    [((), ()), ((0.01,) * 10, ()), ((0.0,) * 10, (0.0,) * 10)],
    ids=["no rank has it", "one rank lacks it", "the clock did not move"],
)
def test_the_cpu_time_is_absent_if_it_was_not_measured(cpu_s):
    assert "cpu_time" not in figures_of(*({"cpu_s": of_rank} for of_rank in cpu_s))


def test_throughput_is_samples_per_wall_time_of_the_slowest_rank():
    """Ranks that stall in turn overlap."""
    launch = launch_of({"step_s": (0.1, 0.3)}, {"step_s": (0.3, 0.1)})

    row = summarise(launch, samples_per_step=100, single=None)

    assert row.throughput == pytest.approx(100 * 2 / 0.4)


def test_memory_and_control_are_those_of_the_worst_rank():
    launch = launch_of(
        {"peak_memory": 5, "control_s": (0.1, 0.1, 0.9)},
        {"peak_memory": 7, "control_s": (0.2, 0.2, 0.2)},
    )

    row = summarise(launch, samples_per_step=1, single=None)

    assert row.values["peak_memory"] == 7.0
    assert row.control_s == pytest.approx(0.2)


def test_each_round_is_compared_with_its_own_one_rank_launch():
    launches = [make_launch(TWO, 0, step_s=0.03), make_launch(TWO, 1, step_s=0.06)]
    singles = [make_launch(ONE, 1, step_s=0.04), make_launch(ONE, 0, step_s=0.01)]

    rows = summarise_all(launches, samples_per_step=128, singles=singles)

    assert [row.round for row in rows] == [0, 1]
    assert [row.values["efficiency"] for row in rows] == pytest.approx([3.0, 1.5])


def test_the_cost_of_strong_scaling_is_against_the_shared_batch():
    one, two = make_cases(batch_sizes={"global": [64]})
    measured = {
        one.id: make_measurement(one, [0.04]),
        two.id: make_measurement(two, [0.03]),
    }

    (row,) = summaries_of(measured)[two.id]

    assert row.values["efficiency"] == pytest.approx(0.03 / 0.02)  # ideally half of 0.04
    assert row.throughput == pytest.approx(64 / 0.03)


def test_a_round_without_one_rank_launch_has_no_efficiency():
    launches = [make_launch(TWO, 0), make_launch(TWO, 1)]

    rows = summarise_all(launches, samples_per_step=128, singles=[make_launch(ONE, 0)])

    assert ["efficiency" in row.values for row in rows] == [True, False]


@pytest.mark.parametrize("steps", [1, 2, 19, 20, 55, 100])
def test_the_95th_percentile_equals_numpys(steps):
    taken = tuple(((7 * step) % 101 + 1) / 1e3 for step in range(steps))

    row = summarise(launch_of({"step_s": taken}), samples_per_step=1, single=None)

    assert row.p95_step_s == pytest.approx(float(np.percentile(taken, 95)))


def test_overhead_is_the_wall_time_outside_the_steps():
    launch = make_launch(make_case(), step_s=0.02)  # a second of wall time
    stepped_s = sum(launch.ranks[0].warmup_s) + sum(launch.ranks[0].step_s)
    no_start = msgspec.structs.replace(launch, wall_s=stepped_s / 2)

    overheads = [
        summarise(one, samples_per_step=1, single=None).overhead_s for one in (launch, no_start)
    ]

    assert overheads == [pytest.approx(1 - stepped_s), 0]


def test_energy_per_sample_is_the_energy_of_all_ranks_over_all_samples():
    """Two warm-ups and three measured steps of 100 samples; 30 J and 20 J."""
    steps = {"warmup_s": (0.2, 0.1), "step_s": (0.1,) * 3}

    row = summarise(
        launch_of({**steps, "energy_j": 30.0}, {**steps, "energy_j": 20.0}),
        samples_per_step=100,
        single=None,
    )

    assert row.values["energy"] == pytest.approx(50 / 500)


def test_energy_counts_the_extra_warm_up_steps():
    steps = {"warmup_s": (0.2, 0.1), "step_s": (0.1,) * 3}
    again = {"extra_warmup": WarmUp(steps=30, steady=True, again=15, step_s=0.01)}

    row = summarise(
        launch_of({**steps, **again, "energy_j": 50.0}), samples_per_step=100, single=None
    )

    assert row.values["energy"] == pytest.approx(50 / 2000)


@pytest.mark.parametrize("readings", [(None, None), (30.0, None), (None, 0.1)])
def test_energy_is_absent_if_one_rank_has_no_reading(readings):
    ranks = [{"energy_j": joules} for joules in readings]

    assert "energy" not in summarise(launch_of(*ranks), samples_per_step=1, single=None).values
