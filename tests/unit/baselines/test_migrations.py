"""Baseline files of older versions are read; `recorded/` contains one that version 1 wrote."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from ddp_perf.baselines.store import read_baseline
from ddp_perf.core.decomposition import TERMS
from ddp_perf.core.verdict import Outcome
from ddp_perf.errors import BaselineError

VERSION_1 = Path(__file__).parent / "recorded" / "baseline_version_1.json"
CASES = ["mlp-ddp-fp32-ws2-b64", "mlp-none-fp32-ws1-b64"]
KEY = "cpu-some-2c-host"


def test_version_1_has_its_sessions_with_their_environments():
    baseline = read_baseline(VERSION_1)

    assert list(baseline.cases) == CASES
    for case in baseline.cases.values():
        first, second, third = case.sessions
        assert [one.date[:10] for one in case.sessions] == [f"2026-11-0{day}" for day in (1, 2, 3)]
        assert (first.environment.commit, first.environment.torch) == ("0123456789ab", "2.13.0")
        assert (second.environment.commit, second.environment.torch) == ("abcdef012345", "2.13.0")
        assert (third.environment.commit, third.environment.torch) == ("abcdef012345", "2.14.0")
        assert third.environment.variables == {"OMP_NUM_THREADS": "1"}


def test_version_1_has_its_figures_terms_and_verdicts():
    for case in read_baseline(VERSION_1).cases.values():
        first, second, third = case.sessions
        assert first.values("step_time") == [0.01, 0.0101, 0.0102]
        figures = {"control": 0.002, "peak_memory": 1000.0, "step_time": 0.0102, "tail": 1.0}
        assert first.launches[2] == figures
        assert first.terms == ()
        assert [terms["forward"] for terms in second.terms] == [0.002] * 3
        assert all(terms.keys() >= set(TERMS) for terms in second.terms)
        assert (first.overhead_s, third.overhead_s) == (0.299, 0.2687)
        assert (first.verdicts, third.verdicts) == ({}, {"step_time": Outcome.REGRESSION})


def test_version_1_is_written_back_in_the_newest_version(store):
    old = read_baseline(VERSION_1)
    store.directory.mkdir()
    shutil.copy(VERSION_1, store.path(KEY))

    store.update(KEY, lambda current: current)

    text = store.path(KEY).read_text()
    assert json.loads(text)["schema_version"] == 2
    assert text.count("Some Processor") == 2  # of 6 sessions
    assert store.load(KEY) == old


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda session: session.pop("environment"), "a field is missing or has another type"),
        (lambda session: session.update(environment=3), "a field is missing or has another type"),
        (lambda session: session.update(launches=[3]), "a field is missing or has another type"),
        (lambda session: session["environment"].pop("torch"), "missing required field `torch`"),
        (lambda session: session["launches"][0].update(tail="x"), "Expected `float | null`, got"),
        (lambda session: session.update(nights=3), "unknown field `nights`"),
    ],
)
def test_a_broken_file_of_version_1_is_refused_with_the_remedy(tmp_path, change, message):
    data = json.loads(VERSION_1.read_bytes())
    change(data["cases"][CASES[0]]["sessions"][1])
    path = tmp_path / "baseline.json"
    path.write_text(json.dumps(data))

    with pytest.raises(BaselineError) as caught:
        read_baseline(path)

    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)
    assert str(caught.value).endswith("restore it from version control")
