"""The replay that checks advice: each undecided verdict, and what later sessions made of it."""

from __future__ import annotations

import numpy as np

from ddp_perf.core.verdict import OPEN, Outcome
from tests.quality import predictions


def drawn(sd, seed=1):
    random = np.random.default_rng(seed)
    return np.exp(random.normal(0, sd, (40, 1)) + random.normal(0, 0.001, (40, 5))).tolist()


def test_what_later_sessions_made_of_an_undecided_verdict_is_recorded(monkeypatch):
    monkeypatch.setattr(predictions, "TOLERANCES", (0.02,))
    series = drawn(0.009)
    undecided = [
        now
        for now in range(3, 40)
        if (verdict := predictions.judged(series, now, 0.02)).outcome is Outcome.UNDECIDED
        and verdict.more_launches is None
    ]

    trials = list(predictions.replayed(series))

    assert len(trials) == len(undecided) > 2
    assert {trial.may for trial in trials} == {True, False}
    for now, trial in zip(undecided, trials, strict=True):
        assert trial.decided == {
            later: predictions.judged(series, now + later, 0.02).outcome not in OPEN
            for later in (1, 3, 5, 10)
            if now + later < 40
        }


def test_a_decided_verdict_is_no_trial(monkeypatch):
    monkeypatch.setattr(predictions, "TOLERANCES", (0.1,))

    assert list(predictions.replayed(drawn(0.0005))) == []
