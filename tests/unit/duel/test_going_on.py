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


def test_a_case_that_failed_in_an_earlier_run_is_launched_again(duel):
    failed, _, _ = duel(fails_at=2)
    assert any(case.failures for case in failed.cases)

    found, _, _ = duel()

    assert not any(case.failures for case in found.cases)
    assert found.outcome is SLOWER
