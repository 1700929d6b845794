"""The file of a fleet: what is refused, with field and remedy; and where the noise comes from."""

from __future__ import annotations

import json
import math
from pathlib import Path

import jsonschema
import numpy as np
import pytest
import yaml
from msgspec.structs import replace

from ddp_perf.baselines.store import BaselineStore
from ddp_perf.errors import BaselineError, ConfigError
from ddp_perf.plan.fleet_file import fleet_schema, read_fleet
from ddp_perf.plan.noise import noise_of
from tests.builders import make_baseline, make_case, make_case_baseline, make_session

FLEET = {
    "fleet": {"nodes": 32, "accelerator": "h100", "gpu_minutes_per_night": 1000},
    "cases": [
        {
            "name": "mlp",
            "nodes": [1, 2],
            "launch_s": 45,
            "noise": {"launch": 0.005, "session": 0.004, "node": 0.01, "visit": 0.004},
        }
    ],
    "find": {"code": {"slower": 0.04, "nights": 3}, "node": {"slower": 0.05, "nights": 14}},
}


@pytest.fixture
def write(tmp_path, monkeypatch):
    """``write(changes)``: a file with some fields changed, by their dotted path."""
    monkeypatch.chdir(tmp_path)

    def written(**changes):
        data = json.loads(json.dumps(FLEET))
        for path, value in changes.items():
            *parents, last = path.split("__")
            at = data
            for parent in parents:
                at = at[int(parent[1:])] if parent.startswith("i") else at[parent]
            at[last] = value
        path = tmp_path / "fleet.yaml"
        path.write_text(yaml.safe_dump(data), "utf-8")
        return path

    return written


def test_a_file_is_read_with_its_defaults(write):
    found = read_fleet(write())

    assert found.fleet.gpus == 256
    assert found.find.probability == 0.9
    assert found.cases[0].tolerance == 0.02


def test_a_file_follows_the_schema(write):
    jsonschema.validate(yaml.safe_load(write().read_text("utf-8")), fleet_schema())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"fleet__nodes": 3}, "fleet.nodes: expected"),
        ({"fleet__node": 3}, "fleet.node: unknown field"),
        ({"cases__i0__nodes": [1, 64]}, "cases[0].nodes: 64 are more than the fleet's 32"),
        ({"cases__i0__nodes": [1, 1]}, "cases[0].nodes: a number is listed twice"),
        ({"cases__i0__nodes": [2]}, "cases: one must run on one node"),
        ({"cases": [FLEET["cases"][0]] * 2}, "'mlp' is the name of two cases"),
        (
            {"cases__i0__noise": {"node": 0.01, "visit": 0.004}},
            "cases[0].noise: launch and session are needed, or a baseline that measured them",
        ),
        ({"cases__i0__baseline": "b.json"}, "cases[0]: baseline and case go together"),
        ({"find__node__nights": 400}, "find.node.nights: expected"),
    ],
)
def test_a_mistake_is_named_with_its_field(write, changes, message):
    with pytest.raises(ConfigError) as raised:
        read_fleet(write(**changes))

    assert "fleet.yaml: " in str(raised.value)
    assert message in str(raised.value)


def test_a_file_that_is_missing_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"none.yaml: cannot be read"):
        read_fleet(tmp_path / "none.yaml")


# ---- noise ----


def case_with_baseline(write, **noise):
    given = {"node": 0.01, "visit": 0.004, **noise}
    measured = {"cases__i0__baseline": "baselines/some.json", "cases__i0__case": "case-1"}
    return read_fleet(write(**measured, cases__i0__noise=given)).cases[0]


def store(sessions, seed=1, launch=0.01, session=0.02):
    random = np.random.default_rng(seed)
    levels = random.normal(0, session, sessions)
    steps = 0.01 * np.exp(levels[:, None] + random.normal(0, launch, (sessions, 5)))
    stored = [make_session(one, day=day + 1) for day, one in enumerate(steps.tolist())]
    case = make_case_baseline(make_case(id="case-1"), *stored)
    baseline = make_baseline({"case-1": case}, accelerator="some")
    BaselineStore(Path("baselines")).update("some", lambda _: baseline)


def test_stated_noise_is_marked_as_stated(write):
    noise = noise_of(read_fleet(write()).cases[0])

    assert set(noise.sources.values()) == {"stated"}
    assert noise.of_visit(1) == pytest.approx(0.004**2 + 0.005**2)


def test_the_noise_of_launches_and_sessions_is_that_of_the_baseline(write):
    """Of 28 sessions an sd has a relative error of 14 %; three of them are allowed."""
    case = case_with_baseline(write)
    store(28)

    noise = noise_of(case)

    assert noise.launch == pytest.approx(0.01, rel=0.2)
    assert noise.session == pytest.approx(0.02, rel=3 / math.sqrt(2 * 27))
    assert noise.sources == {
        "launch": "measured",
        "session": "measured",
        "node": "stated",
        "visit": "stated",
    }
    assert noise.note == "baselines/some.json, case-1"


def test_what_is_stated_replaces_what_a_baseline_measured(write):
    case = case_with_baseline(write, launch=0.003)
    store(28)

    noise = noise_of(case)

    assert (noise.launch, noise.sources["launch"]) == (0.003, "stated")


def test_too_few_sessions_are_refused(write):
    case = case_with_baseline(write)
    store(2)

    with pytest.raises(ConfigError, match="has 2 sessions, too few"):
        noise_of(case)


def test_an_unknown_case_is_refused_with_those_that_there_are(write):
    case = case_with_baseline(write)
    store(5)
    BaselineStore(Path("baselines")).update("some", lambda stored: replace(stored, cases={}))

    with pytest.raises(ConfigError, match="there is no case case-1"):
        noise_of(case)


def test_a_baseline_that_is_not_there_is_refused(write):
    case = case_with_baseline(write)

    with pytest.raises(BaselineError, match="there is no such baseline"):
        noise_of(case)
