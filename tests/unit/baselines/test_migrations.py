"""Baseline files of older versions are read; `recorded/` contains what versions 1 and 2 wrote."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import pytest

from ddp_perf.baselines.store import read_baseline
from ddp_perf.core.baseline import SCHEMA_VERSION
from ddp_perf.core.decomposition import TERMS
from ddp_perf.core.verdict import Outcome
from ddp_perf.errors import BaselineError

VERSION_1, VERSION_2 = OLDER = [
    Path(__file__).parent / "recorded" / f"baseline_version_{version}.json" for version in (1, 2)
]
of_both = pytest.mark.parametrize("older", OLDER, ids=["version 1", "version 2"])
CASES = ["mlp-ddp-fp32-ws2-b64", "mlp-none-fp32-ws1-b64"]
KEY = "cpu-some-2c-host"


def test_both_versions_of_one_file_have_the_same_content():
    one, two = map(read_baseline, OLDER)

    assert one == two


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


@of_both
def test_an_older_file_has_its_figures_of_the_median_by_their_own_names(older):
    medians = {"median_step_time": 0.0102, "median_tail": 1.0}
    for case in read_baseline(older).cases.values():
        first, second, third = case.sessions
        assert first.values("median_step_time") == [0.01, 0.0101, 0.0102]
        assert first.launches[2] == {"control": 0.002, "peak_memory": 1000.0, **medians}
        assert case.first == {"median_step_time": 0.01}
        assert first.terms == ()
        assert [terms["forward"] for terms in second.terms] == [0.002] * 3
        assert all(terms.keys() >= set(TERMS) for terms in second.terms)
        assert (first.overhead_s, third.overhead_s) == (0.299, 0.2687)
        assert (first.verdicts, third.verdicts) == ({}, {"median_step_time": Outcome.REGRESSION})


@of_both
def test_an_older_file_has_no_level_but_one_of_each_metric_that_kept_its_meaning(older):
    for case in read_baseline(older).cases.values():
        assert [case.level(name) for name in ("step_time", "tail", "efficiency")] == [None] * 3
        assert case.level("peak_memory") == 1000.0
        assert case.level("median_step_time") == 0.0101
        assert case.medians_instead_of("step_time") == case.sessions
        assert case.medians_instead_of("peak_memory") == ()


@of_both
def test_the_unit_of_every_figure_is_in_the_file(older):
    units = read_baseline(older).units

    assert (units["step_time"], units["median_step_time"]) == ("s", "s")
    assert (units["tail"], units["median_tail"], units["control"]) == ("ratio", "ratio", "s")


@of_both
def test_an_older_file_is_written_back_in_the_newest_version_without_a_loss(store, older):
    old = read_baseline(older)
    store.directory.mkdir()
    shutil.copy(older, store.path(KEY))

    store.update(KEY, lambda current: current)

    text = store.path(KEY).read_text()
    assert json.loads(text)["schema_version"] == SCHEMA_VERSION
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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda case: case.pop("first"),
            "a field is missing or has another type than in version 2",
        ),
        (lambda case: case.update(first=3), "a field is missing or has another type than in versi"),
        (lambda case: case.update(sessions=3), "a field is missing or has another type than in v"),
        (lambda case: case["sessions"][0].update(verdicts=3), "has another type than in version 2"),
        (lambda case: case["sessions"][0]["launches"].update(tail=["x"] * 3), "Expected `float |"),
    ],
)
def test_a_broken_file_of_version_2_is_refused_and_not_changed(store, change, message):
    data = json.loads(VERSION_2.read_bytes())
    change(data["cases"][CASES[0]])
    store.directory.mkdir()
    store.path(KEY).write_text(json.dumps(data))
    before = store.path(KEY).read_bytes()

    with pytest.raises(BaselineError, match=re.escape(message)):
        store.update(KEY, lambda current: current)

    assert store.path(KEY).read_bytes() == before


def test_an_upgrade_that_is_interrupted_leaves_the_older_file(store, monkeypatch):
    store.directory.mkdir()
    shutil.copy(VERSION_2, store.path(KEY))

    def interrupt(descriptor):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", interrupt)
        with pytest.raises(KeyboardInterrupt):
            store.update(KEY, lambda current: current)

    assert store.path(KEY).read_bytes() == VERSION_2.read_bytes()
    assert store.load(KEY) == read_baseline(VERSION_2)
