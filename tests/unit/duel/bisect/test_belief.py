"""The posterior over the places of one or two steps, against the formula in plain Python."""

from __future__ import annotations

import itertools
import math
import random
import statistics

import pytest

from ddp_perf.duel.bisect.search import (
    _BETWEEN,
    TWO_STEPS,
    Reading,
    Suspects,
    believe,
    levels,
)

NOISE = 0.02


def make_readings(level, pairs, *, seed=1, noise=NOISE):
    """Return readings of pairs of places, each pair in its own mood."""
    rng = random.Random(seed)
    readings = []
    for block, pair in enumerate(pairs):
        mood = rng.gauss(0, 1)
        for place in pair:
            readings.append(Reading(block, place, mood + level(place) + rng.gauss(0, noise)))
    return readings


def one_step(at, size=0.1):
    return lambda place: size if place >= at else 0.0


def likelihood(level, readings):
    """The marginal likelihood of one hypothesis, without its constant."""
    centred = []
    blocks = {reading.block for reading in readings}
    for block in blocks:
        rows = [(level(r.place), r.log) for r in readings if r.block == block]
        means = [statistics.fmean(column) for column in zip(*rows, strict=True)]
        centred += [(z - means[0], y - means[1]) for z, y in rows]
    zz, zy, yy = (sum(a[i] * a[j] for a in centred) for i, j in ((0, 0), (0, 1), (1, 1)))
    return zz**-0.5 * (yy - zy**2 / zz) ** (-(len(readings) - len(blocks) - 1) / 2)


def test_the_posterior_is_that_of_the_formula():
    length = 4
    readings = make_readings(one_step(3), [(0, 4), (4, 0), (0, 4), (2, 0), (3, 4)], noise=0.05)
    shares = {}
    for k in range(length):
        one = likelihood(lambda p, k=k: float(p > k), readings)
        shares[k] = (1 - TWO_STEPS) / length * one
    pairs = list(itertools.combinations(range(length), 2))
    for j, k in pairs:
        each = [
            likelihood(lambda p, j=j, k=k, f=f: f * (p > j) + (1 - f) * (p > k), readings)
            for f in _BETWEEN
        ]
        # Each level between is a hypothesis of its own, and they share the prior of the pair.
        shares[j, k] = TWO_STEPS / len(pairs) * statistics.fmean(each)
    total = sum(shares.values())

    belief = believe(length, (), readings)

    assert belief.one == pytest.approx([shares[k] / total for k in range(length)])
    assert belief.two == pytest.approx({pair: shares[pair] / total for pair in pairs})
    assert sum(belief.one) + belief.steps() == pytest.approx(1)


def test_the_mood_of_a_block_does_not_count():
    readings = make_readings(one_step(3), [(0, 8), (4, 0), (2, 8), (0, 8)])
    moved = [r._replace(log=r.log + 5 * r.block) for r in readings]

    assert believe(8, (), moved).one == pytest.approx(believe(8, (), readings).one)


def test_before_a_commit_between_is_asked_all_are_alike_and_the_middle_is_least_certain():
    belief = believe(8, (), make_readings(one_step(3), [(0, 8)] * 6))

    assert belief.one == pytest.approx([belief.one[0]] * 8)
    assert [belief.doubt[0], belief.doubt[8]] == pytest.approx([0, 0])
    assert max(range(9), key=belief.doubt.__getitem__) == 4
    assert belief.found(0.95) == ()


def test_clear_evidence_finds_the_commit():
    pairs = [(0, 8)] * 4 + [(3, 8), (2, 0), (3, 0), (2, 8)]

    belief = believe(8, (), make_readings(one_step(3), pairs, noise=0.002))

    assert belief.found(0.95) == (Suspects(first=3, last=3),)
    assert belief.chance_of(belief.found(0.95)) > 0.95
    assert max(enumerate(belief.chances(), start=1), key=lambda each: each[1])[0] == 3


def test_commits_that_cannot_be_launched_share_the_blame_with_the_next_one():
    pairs = [(0, 8)] * 4 + [(2, 0), (5, 8), (2, 8), (5, 0)]

    belief = believe(8, {3, 4}, make_readings(one_step(4), pairs, noise=0.002))

    (suspects,) = belief.found(0.95)
    assert suspects == Suspects(first=3, last=5)
    chances = belief.chances()
    assert chances[2] == chances[3] == chances[4]
    assert len(chances) == 8


def test_innocent_commits_have_no_probability_and_bad_stands_for_the_last_suspect():
    innocent = {1, 2, 4, 6, 8}  # 3, 5 and 7 are left

    belief = believe(8, (), make_readings(one_step(5), [(0, 8)] * 4 + [(3, 8)]), innocent)

    assert belief.marks == (0, 3, 5, 8)
    chances = belief.chances()
    assert [place for place, chance in enumerate(chances, start=1) if chance] == [3, 5, 7]
    assert sum(belief.one) + belief.steps() == pytest.approx(1)
    suspects, _ = belief.smallest(0.6)
    assert suspects == Suspects(first=4, last=8)  # 5 and 7


def test_an_innocent_commit_that_an_older_search_launched_is_evidence_and_no_suspect():
    readings = make_readings(one_step(5), [(0, 8)] * 4 + [(6, 0), (6, 8), (3, 8)])

    belief = believe(8, (), readings, {1, 2, 4, 6, 8})

    assert belief.marks == (0, 3, 5, 6, 8)
    assert belief.chances()[5] == 0
    assert max(enumerate(belief.chances(), start=1), key=lambda each: each[1])[0] == 5


def test_suspects_of_which_none_can_be_launched_share_all_of_it():
    belief = believe(8, {3}, make_readings(one_step(5), [(0, 8)] * 4), {1, 2, 4, 5, 6, 7})

    assert belief.one == (1,)
    assert belief.found(0.95) == (Suspects(first=1, last=8),)
    assert belief.chances() == [0, 0, 0.5, 0, 0, 0, 0, 0.5]


def test_if_none_between_can_be_launched_all_share_the_blame_at_once():
    belief = believe(3, {1, 2}, make_readings(one_step(2), [(0, 3)] * 4))

    assert belief.found(0.95) == (Suspects(first=1, last=3),)


@pytest.mark.parametrize("share", [0.5, 0.3, 1.5])
def test_two_steps_are_found_with_both_commits(share):
    def level(place):
        return 0.2 * (share * (place >= 2) + (1 - share) * (place >= 6))

    pairs = [(0, 8)] * 4 + [(place, end) for place in (1, 2, 4, 5, 6) for end in (0, 8)]

    belief = believe(8, (), make_readings(level, pairs, noise=0.003))

    assert belief.found(0.95) == (Suspects(first=2, last=2), Suspects(first=6, last=6))
    assert belief.steps() > 0.99


def test_the_smallest_set_of_adjacent_commits_has_the_confidence_and_no_smaller_one_has():
    belief = believe(16, (), make_readings(one_step(5), [(0, 16)] * 4 + [(4, 0), (8, 16)]))

    suspects, chance = belief.smallest(0.8)

    assert chance >= 0.8
    within = {}
    for low, high in itertools.combinations(range(17), 2):
        both = sum(p for (j, k), p in belief.two.items() if low <= j and k < high)
        within[low, high] = sum(belief.one[low:high]) + both
    assert chance == pytest.approx(within[suspects.first - 1, suspects.last])
    size = suspects.last - suspects.first + 1
    assert all(p < 0.8 for (low, high), p in within.items() if high - low < size)


def test_a_long_line_is_divided_where_the_step_is():
    readings = make_readings(one_step(700), [(0, 1000)] * 6, noise=0.002)
    wide = believe(1000, (), readings)
    assert len(wide.one) <= 65
    low, high = max(m for m in wide.marks if m < 700), min(m for m in wide.marks if m >= 700)
    readings += [
        reading._replace(block=6 + reading.block)
        for reading in make_readings(
            one_step(700), [(low, 0), (high, 1000), (low, 1000), (high, 0)], noise=0.002
        )
    ]

    fine = believe(1000, (), readings)

    assert {*range(low, high + 1)} <= set(fine.marks)
    assert sum(fine.chances()[low:high]) > 0.95


def test_levels_are_ratios_to_good_over_all_blocks():
    pairs = [(0, 8)] * 4 + [(4, 8), (4, 8), (5, 0)]

    found = levels(make_readings(one_step(5, math.log(1.2)), pairs, noise=0.0001))

    assert {place: round(level.ratio, 2) for place, level in found.items()} == {
        4: 1,
        5: 1.2,
        8: 1.2,
    }
    assert all(level.interval[0] < level.ratio < level.interval[1] for level in found.values())


@pytest.mark.parametrize("pairs", [[], [(0, 8)]])
def test_too_few_launches_have_no_levels(pairs):
    assert levels(make_readings(one_step(5), pairs)) == {}
