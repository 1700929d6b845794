"""The figures of one launch: the slowest rank decides, and throughput contains every stall."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from ddp_perf.core.launch import WarmUp
from ddp_perf.stats.summary import summarise, summarise_all
from tests.builders import make_case, make_cases, make_launch, make_rank_result

ONE, TWO = make_cases()


def launch_of(*ranks):
    """Return a launch whose ranks took these steps."""
    results = tuple(make_rank_result(rank, **fields) for rank, fields in enumerate(ranks))
    return msgspec.structs.replace(make_launch(make_case()), ranks=results)


def test_a_step_takes_as_long_as_its_slowest_rank():
    launch = launch_of({"step_s": (0.1, 0.4, 0.2)}, {"step_s": (0.3, 0.2, 0.2)})

    assert launch.step_s == [0.3, 0.4, 0.2]


def test_ranks_with_different_numbers_of_steps_are_an_error():
    launch = launch_of({"step_s": (0.1, 0.1)}, {"step_s": (0.1,)})

    with pytest.raises(ValueError, match="shorter"):
        _ = launch.step_s


def test_a_stall_shows_in_mean_tail_and_throughput_but_not_in_the_typical_step():
    steps = (0.01,) * 9 + (0.11,)

    row = summarise(launch_of({"step_s": steps}), samples_per_step=100, single=None)

    assert row.values["step_time"] == pytest.approx(0.01)
    assert row.mean_step_s == pytest.approx(0.02)
    assert row.values["tail"] == pytest.approx(2.0)
    assert row.throughput == pytest.approx(100 * 10 / 0.2)


def test_throughput_is_samples_per_wall_time_of_the_slowest_rank():
    """Ranks that stall in turn overlap: the wall time is a rank's, not the sum of maxima."""
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
    again = {"extra_warmup": WarmUp(steps=30, steady=True, again=15)}

    row = summarise(
        launch_of({**steps, **again, "energy_j": 50.0}), samples_per_step=100, single=None
    )

    assert row.values["energy"] == pytest.approx(50 / 2000)


@pytest.mark.parametrize("readings", [(None, None), (30.0, None), (None, 0.1)])
def test_energy_is_absent_if_one_rank_has_no_reading(readings):
    ranks = [{"energy_j": joules} for joules in readings]

    assert "energy" not in summarise(launch_of(*ranks), samples_per_step=1, single=None).values
