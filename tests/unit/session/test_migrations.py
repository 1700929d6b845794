"""Results files of older versions are read; `recorded/` contains what versions 1 to 4 wrote."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import pytest

from ddp_perf.baselines.save import Refused, Saved
from ddp_perf.core.disturbance import RankConditions
from ddp_perf.errors import ResultsError
from ddp_perf.session.gate.disturbance import find_disturbance, find_own_costs
from ddp_perf.session.results_file import SCHEMA_VERSION, read_results, write_results
from ddp_perf.stats.level import launch_level
from ddp_perf.stats.summary import summaries_of

VERSION_1, VERSION_2, VERSION_3, VERSION_4 = (
    Path(__file__).parent / "recorded" / f"results_version_{version}.json"
    for version in (1, 2, 3, 4)
)
CASE = "mlp-ddp-fp32-ws2-b16"


def test_version_1_has_its_findings_with_the_number_of_sessions():
    refused, stored = read_results(VERSION_1).suites

    for suite in (refused, stored):
        step_time = suite.finding(CASE, "step_time")
        assert step_time is not None
        assert (step_time.sessions, step_time.baseline_date) == (1, "2026-11-22T01:45:46+00:00")


def test_version_1_has_what_was_saved_and_what_was_refused():
    refused, stored = read_results(VERSION_1).suites

    assert stored.saved == {CASE: Saved(path="baselines/cpu-xeon-2c-vm.json", mode="append")}
    assert stored.not_saved == refused.saved == {}
    assert refused.not_saved[CASE].reason.startswith("too noisy: launches differ by 19.0%")


def test_version_1_is_written_back_in_the_newest_version(tmp_path):
    old, path = read_results(VERSION_1), tmp_path / "results.json"

    write_results(path, old.suites, complete=True)

    assert json.loads(path.read_bytes())["schema_version"] == SCHEMA_VERSION
    assert read_results(path) == old


def edited(tmp_path, change, older=VERSION_1):
    data = json.loads(older.read_bytes())
    change(data)
    path = tmp_path / "results.json"
    path.write_text(json.dumps(data))
    return path


def test_a_note_of_version_1_in_other_words_is_read(tmp_path):
    def reword(data):
        data["suites"][0]["not_saved"] = {CASE: "other words"}
        data["suites"][1]["saved"] = {CASE: "other words"}

    refused, stored = read_results(edited(tmp_path, reword)).suites

    assert refused.not_saved == {CASE: Refused(reason="other words")}
    assert stored.saved == {CASE: Saved(path="baselines/cpu-xeon-2c-vm.json", mode="append")}


def test_figures_that_were_added_later_are_computed_from_the_launches():
    """The overhead was added to the summaries later than the first files of version 1."""
    _, stored = read_results(VERSION_1).suites

    assert all(row.overhead_s > 0 for row in stored.summaries[CASE])


def test_the_conditions_of_a_launch_become_those_of_its_ranks(tmp_path):
    def throttle(data):
        measurement = data["suites"][0]["measurements"][CASE]
        for launch in measurement["launches"]:
            launch["conditions"] = {"quota": 0.6, "memory": None}
        data["suites"][0]["explaining"] = {CASE: measurement["launches"][:1]}

    throttled, _ = read_results(edited(tmp_path, throttle)).suites

    disturbance = find_disturbance(CASE, throttled.measurements)
    assert "the CPU quota of the control group held back 60 %" in str(disturbance)
    assert find_own_costs(CASE, throttled.measurements) is None
    for launch in (*throttled.measurements[CASE].launches, *throttled.explaining[CASE]):
        assert [rank.conditions for rank in launch.ranks] == [RankConditions(quota=0.6)] * 2


@pytest.mark.parametrize(
    ("shared", "own", "expected"),
    [
        ({"quota": 0.6}, {"quota": None, "foreign": 0.2}, (0.6, 0.2)),
        ({"quota": 0.6}, {"quota": 0.1}, (0.1, None)),
        ({"quota": None}, {"quota": 0.1}, (0.1, None)),
        (None, {"quota": 0.1, "foreign": 0.2}, (0.1, 0.2)),
        ({"quota": 0.6}, None, (0.6, None)),
    ],
    ids=["unknown", "both", "none shared", "later version 1", "no conditions of ranks"],
)
def test_a_known_condition_of_a_rank_is_kept(tmp_path, shared, own, expected):
    """Later files of version 1 have all conditions with the ranks."""

    def change(data):
        for launch in data["suites"][0]["measurements"][CASE]["launches"]:
            for holder, conditions in ((launch, shared), *((r, own) for r in launch["ranks"])):
                del holder["conditions"]
                if conditions is not None:
                    holder["conditions"] = conditions

    found, _ = read_results(edited(tmp_path, change)).suites

    ranks = found.measurements[CASE].launches[0].ranks
    assert [(rank.conditions.quota, rank.conditions.foreign) for rank in ranks] == [expected] * 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data.pop("suites"), "a field is missing or has another type than in ver"),
        (lambda data: data.update(suites=3), "a field is missing or has another type than in ver"),
        (lambda data: data.pop("complete"), "missing required field `complete`"),
        (lambda data: data.update(schema_version=0), "schema_version: is 0, this ddp-perf reads 4"),
        (lambda data: data.update(schema_version=True), "schema_version: is True, this ddp-perf"),
    ],
    ids=["no suites", "suites of another type", "no field", "version 0", "version true"],
)
def test_a_broken_file_of_version_1_is_refused_with_the_remedy(tmp_path, change, message):
    path = edited(tmp_path, change)

    with pytest.raises(ResultsError) as caught:
        read_results(path)

    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)
    assert "pytest --ddp-json" in str(caught.value)


ONE, TWO = "mlp-none-fp32-ws1-b64", "mlp-ddp-fp32-ws2-b64"


def test_the_figures_of_version_2_are_computed_again_from_its_steps():
    (suite,) = read_results(VERSION_2).suites

    one, two = (suite.measurements[case].launches for case in (ONE, TWO))
    for row, launch, single in zip(suite.summaries[TWO], two, one, strict=True):
        level = launch_level(launch.step_s)
        assert level < statistics.median(launch.step_s)
        assert row.values["step_time"] == pytest.approx(level)
        assert row.values["tail"] == pytest.approx(statistics.fmean(launch.step_s) / level)
        assert row.values["efficiency"] == pytest.approx(level / launch_level(single.step_s))
    rows = summaries_of(suite.measurements)
    assert suite.summaries == {case_id: tuple(found) for case_id, found in rows.items()}


def test_the_cpu_time_of_the_main_thread_in_version_2_is_no_cpu_time_of_a_rank():
    (suite,) = read_results(VERSION_2).suites

    launches = [*suite.measurements[TWO].launches, *suite.explaining[TWO]]
    assert {rank.cpu_s for launch in launches for rank in launch.ranks} == {()}


def test_all_other_fields_of_version_2_are_as_they_were(tmp_path):
    """Findings have the figures and the sentences that they were judged by."""
    before, path = json.loads(VERSION_2.read_bytes()), tmp_path / "results.json"
    write_results(path, read_results(VERSION_2).suites, complete=True)
    after = json.loads(path.read_bytes())

    assert after.pop("schema_version") == SCHEMA_VERSION
    assert before.pop("schema_version") == 2
    for suite in (*before["suites"], *after["suites"]):
        del suite["summaries"]
    for launch in (
        *before["suites"][0]["explaining"][TWO],
        *(one for m in before["suites"][0]["measurements"].values() for one in m["launches"]),
    ):
        for rank in launch["ranks"]:
            rank["cpu_s"] = []
            assert rank.pop("sm_clock_mhz") is None  # once read of an idle GPU, and left out now
    assert contains(after, before)


def contains(after, before):
    """Return whether every value of ``before`` is in ``after``, which may have newer fields."""
    if isinstance(before, dict):
        return all(name in after and contains(after[name], v) for name, v in before.items())
    if isinstance(before, list):
        return len(after) == len(before) and all(map(contains, after, before))
    return after == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rank: rank.pop("step_s"), "missing required field `step_s`"),
        (lambda rank: rank.update(step_s=[0.01, "x"]), ".ranks[0].step_s[1]: Expected `float`"),
        (lambda rank: rank.update(step_s=[0.0] * 10), "a rank has no step, or a step has no time"),
        (lambda rank: rank.update(step_s=[]), "a rank has no step, or a step has no time"),
        (lambda rank: rank.update(control_s=[]), "0 summaries of 3 launches"),
    ],
    ids=["no steps", "text", "no time", "empty", "no control"],
)
def test_a_broken_file_of_version_2_is_refused(tmp_path, change, message):
    def spoil(data):
        change(data["suites"][0]["measurements"][ONE]["launches"][0]["ranks"][0])

    with pytest.raises(ResultsError) as caught:
        read_results(edited(tmp_path, spoil, VERSION_2))

    assert message in str(caught.value)
    assert "pytest --ddp-json" in str(caught.value)


def test_version_3_is_read_as_it_was_stored():
    (suite,) = read_results(VERSION_3).suites

    assert {saved.mode for saved in suite.saved.values()} == {"missing"}
    assert {case_id: saved.without for case_id, saved in suite.saved.items()} == {ONE: {}, TWO: {}}


@pytest.mark.parametrize(
    ("without", "metrics"),
    [
        (
            "tail (mean step ÷ its level), CPU time of a step: 2 launches were disturbed",
            {"tail", "cpu_time"},
        ),
        ({"tail": "2 launches were disturbed"}, {"tail"}),
    ],
    ids=["one text", "by metric"],
)
def test_a_metric_that_version_3_left_out_is_left_out_still(tmp_path, without, metrics):
    def leave_out(data):
        data["suites"][0]["saved"][TWO]["without"] = without

    (suite,) = read_results(edited(tmp_path, leave_out, older=VERSION_3)).suites

    assert suite.saved[TWO].without.keys() == metrics
    assert all("2 launches were disturbed" in why for why in suite.saved[TWO].without.values())


def test_a_field_that_changes_its_type_needs_a_new_version():
    """The file is of an earlier state of version 4: as long as this is the newest, it is read."""
    (suite,) = read_results(VERSION_4).suites

    assert suite.findings
    assert all(launch.losses for launch in suite.measurements[TWO].launches)
