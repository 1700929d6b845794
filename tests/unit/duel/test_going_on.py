"""A duel that was ended goes on from its log, to the verdict of one that nobody ended."""

from __future__ import annotations

import contextlib

import pytest

from ddp_perf.session.measure.experiment import open_log
from tests.builders import make_case
from tests.unit.duel.played_sides import SLOWER, Clock, PlayedSide, play

CASES = [make_case(id="one"), make_case(id="two")]


class Steady(PlayedSide):
    """A side whose launches differ by their case and their round alone, whoever asks for them."""

    def _draw(self, noise):
        case_id, round_ = self.asked[-1] if self.asked else ("", 0)
        return 1 + 0.01 * ((7 * round_ + 3 * len(case_id)) % 5)


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


@pytest.fixture
def duel(clock, tmp_path):
    """``duel()`` runs it to its end; ``duel(interrupt_at=n)``, of side B, until it is ended."""

    def run(*, folder="log", **changes):
        sides = Steady(clock, 1), Steady(clock, 2, slower=1.1, cpu=1.1, **changes)
        updates = []
        with contextlib.closing(open_log(tmp_path / folder, {"q": "x"}, {})) as log:
            with contextlib.suppress(KeyboardInterrupt):
                play(clock, *sides, CASES, tolerance=0.02, log=log, updates=updates)
            return updates[-1], log.entries, sides

    return run


def results(duel):
    return [(case.metrics, case.power, len(case.aa)) for case in duel.cases]


@pytest.mark.parametrize("number", [1, 2, 3, 7, 12])
def test_a_duel_goes_on_to_the_same_verdict(duel, number):
    whole, launches, _ = duel(folder="whole")

    ended, before, _ = duel(interrupt_at=number)
    found, entries, (a, b) = duel()

    assert whole.outcome is SLOWER
    assert not ended.complete
    assert results(found) == results(whole)
    assert entries[: len(before)] == before
    assert len(a.asked) + len(b.asked) == len(entries) - len(before)
    assert len(entries) - len(launches) in (0, 1)  # a pair that was torn is launched again


def test_a_duel_that_ends_after_each_launch_comes_to_the_same_verdict(duel):
    whole, _, _ = duel(folder="whole")

    for _ in range(100):
        found, _, _ = duel(interrupt_at=2)
        if found.outcome is SLOWER and not any(case.metrics == () for case in found.cases):
            break

    assert results(duel()[0]) == results(whole)


@pytest.mark.parametrize("number", range(1, 13))  # in some of them side B is launched first
def test_a_pair_with_a_launch_that_failed_is_no_pair_in_this_run_or_a_later_one(duel, number):
    failed, _, _ = duel(fails_at=number)
    (broken,) = [case for case in failed.cases if case.failures]
    assert all(pair.a.round == pair.b.round == pair.block for pair in broken.pairs)

    again, _, (a, b) = duel()

    assert results(again) == results(failed)
    assert not [name for name, _ in a.asked + b.asked if name == broken.id]


def test_a_spare_case_that_was_left_out_stays_so(clock, tmp_path):
    found = []
    for interrupt_at in (4, None):
        sides = Steady(clock, 1), Steady(clock, 2, interrupt_at=interrupt_at)
        options = {"budget_s": 30, "spare": ["two", "one"], "updates": found}
        with (
            contextlib.closing(open_log(tmp_path, {"q": "x"}, {})) as log,
            contextlib.suppress(KeyboardInterrupt),
        ):
            play(clock, *sides, CASES, log=log, **options)

    assert [case.id for case in found[-1].cases] == ["one"]
    assert [one.case_id for one in found[-1].left_out] == ["two"]
    assert found[-1].complete is False or len(found[-1].cases[0].pairs) >= 6


def test_servers_are_renewed_in_a_later_run_too(clock, tmp_path):
    for interrupt_at in (10, None):
        sides = [PlayedSide(clock, seed, noise=0.2, start_s=0.1) for seed in (1, 2)]
        sides[1]._changes["interrupt_at"] = interrupt_at
        with (
            contextlib.closing(open_log(tmp_path, {"q": "x"}, {})) as log,
            contextlib.suppress(KeyboardInterrupt),
        ):
            play(clock, *sides, CASES[:1], log=log, tolerance=0.01)

    assert sides[1].ends >= len(sides[1].asked) / 3 - 1
