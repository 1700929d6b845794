"""Collectives on real gloo ranks: right and wrong results, and a whole pytest session."""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args
from xml.etree import ElementTree

import pytest

from ddp_perf.core.launch import LaunchFailure, LaunchRequest, LaunchResult, Unit
from ddp_perf.core.subject import CollectiveKind
from tests.builders import make_collectives
from tests.projects import make_project

KINDS = get_args(CollectiveKind)
WRONG_RESULTS = Path(__file__).parent / "wrong_results"

SUITE = """
suite: links
tier: cpu
collectives: [all_reduce, all_gather]
sizes: [1KiB, 64KiB]
world_sizes: [2]
steps: 6
warmup: 2
launches: 2
# Wide: neighbours of a test are noisy, and these tests are about texts, not figures.
tolerances: {step_time: 0.95, tail: null}
"""


def request_of(kind, **changes):
    (case,) = make_collectives(collectives=[kind], sizes=["96KiB"], steps=4, **changes)
    return LaunchRequest(case=case, round=0)


@pytest.mark.parametrize("world_size", [2, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", KINDS)
def test_every_collective_is_correct_and_timed_on_every_rank(launcher, kind, world_size):
    outcome = launcher.launch(request_of(kind, world_sizes=[world_size]))

    assert isinstance(outcome, LaunchResult), outcome
    assert len(outcome.ranks) == world_size
    for rank in outcome.ranks:
        assert len(rank.step_s) in (2, 4, 6, 8, 10)  # a busy machine adds steps
        assert min(rank.step_s) > 0
        assert rank.unit == Unit(name="bytes", per_sample=96 * 1024)
        # What only training has is absent.
        assert (rank.structure, rank.digest, rank.flops) == (None, None, None)
        assert rank.ddp_logging == {}


@pytest.mark.parametrize("kind", KINDS)
def test_a_wrong_result_fails_the_launch_and_names_rank_and_collective(launcher, kind):
    env = {"PYTHONPATH": str(WRONG_RESULTS)}

    outcome = launcher.launch(request_of(kind, env=env))

    assert isinstance(outcome, LaunchFailure)
    assert (outcome.kind, outcome.rank) == ("exception", 1)
    values = 96 * 1024 // 4 // (2 if kind == "reduce_scatter" else 1)
    assert f"{kind} of 96KiB gave a wrong result: 1 of {values:,} values" in outcome.detail
    assert f"the first at {values * 3 // 4:,}" in outcome.detail
    assert outcome.traceback == ""


@pytest.fixture
def project(pytester, monkeypatch):
    """The suite's own tests of measured cases, and one suite of collectives."""
    return make_project(pytester, monkeypatch, addopts="-m cpu -p no:cacheprovider", links=SUITE)


@pytest.mark.slow
def test_a_session_stores_judges_and_reports_collectives(project):
    saved = project.runpytest("--save-baseline")
    assert "4 cases: stored in" in saved.stdout.str()
    saved.stdout.fnmatch_lines(["*algbw*busbw*", "*verdict*call*GB/s*GB/s*"])

    judged = project.runpytest(
        *("--ddp-budget=0", "--ddp-json=results.json", "--junitxml=junit.xml")
    )

    assert "samples" not in judged.stdout.str()
    (suite,) = json.loads((project.path / "results.json").read_text())["suites"]
    assert {finding["metric"] for finding in suite["findings"]} == {"step_time"}
    assert [(link["kind"], link["ranks"]) for link in suite["links"]] == [
        ("all_reduce", 2),
        ("all_gather", 2),
    ]
    items = list(ElementTree.parse(project.path / "junit.xml").iter("testcase"))
    assert {item.get("name").partition("[")[0] for item in items} == {"test_step_time"}
    for item in items:
        figures = {p.get("name"): p.get("value") for p in item.iter("property")}
        bandwidths = float(figures["busbw_gb_per_s"]) / float(figures["algbw_gb_per_s"])
        expected = 1.0 if "all_reduce" in item.get("name") else 0.5  # of two ranks
        assert bandwidths == pytest.approx(expected)
        assert float(figures["call_us"]) > 0
        assert "step_time_ms" not in figures


@pytest.mark.slow
def test_a_baseline_contains_a_collective_like_any_case(project):
    project.runpytest("--save-baseline", "-k", "all_reduce and 64KiB")

    (path,) = (project.path / "baselines").glob("*.json")
    (case,) = json.loads(path.read_text())["cases"].values()
    assert case["work"] == {
        "collective.calls": 20,
        "collective.kind": "all_reduce",
        "collective.payload": 65536,
        "tier": "cpu",
        "world_size": 2,
    }
    assert case.get("structure") is None
    (session,) = case["sessions"]
    assert all(step_s > 0 for step_s in session["launches"]["step_time"])
