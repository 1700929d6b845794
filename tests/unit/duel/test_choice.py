"""The cases of a duel that nobody named, on machines of several sizes."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddp_perf.baselines.store import BaselineStore
from ddp_perf.config.loading import Overrides, find_suites, load_cases
from ddp_perf.duel.cases import MatchedCases
from ddp_perf.duel.run import choice_text, choose_cases, default_budget_s, stored_launch_s
from ddp_perf.duel.values import MissingSide, SideCase
from tests.builders import make_capacity, make_case, make_cases, make_gpu_machine

CONFIGS = Path(__file__).parents[3] / "bench_configs"


def matched_of(cases, missing=()):
    sides = tuple(SideCase(a=case, b=case) for case in cases)
    return MatchedCases(cases=sides, missing=tuple(missing))


def chosen(matched, *, budget_s, launch_s=lambda case: 11.0, fits=lambda case: True):
    return choose_cases(matched, budget_s=budget_s, launch_s=launch_s, fits=fits)


@pytest.mark.parametrize("gpus", [2, 4, 8])
def test_ten_minutes_of_the_shipped_suites_are_one_case_each_of_three_kinds(gpus, tmp_path):
    capacity = make_capacity(make_gpu_machine(*["NVIDIA A100-SXM4-80GB"] * gpus))
    shipped = load_cases(find_suites(CONFIGS), Overrides())
    runnable = [c for c in shipped if c.tier == "gpu" and capacity.obstacle(c) is None]
    matched, launch_s = matched_of(runnable), stored_launch_s(BaselineStore(tmp_path), capacity)

    found = chosen(
        matched, budget_s=default_budget_s(matched), launch_s=launch_s, fits=capacity.fits
    )

    assert [(one.b.strategy, one.b.precision, one.b.world_size) for one in found.cases] == [
        ("ddp", "fp32", gpus),
        ("fsdp", "fp32", gpus),
        ("ddp", "bf16", gpus),
    ]
    assert len(found.left_out) == len(runnable) - 3
    assert f"10 min have room for 3 of {len(runnable)} cases" in choice_text(found, 600.0)


def test_a_budget_with_room_for_all_leaves_none_out():
    found = chosen(matched_of(make_cases()), budget_s=400)

    assert (len(found.cases), found.left_out) == (2, ())
    assert found.spare == ("mlp-none-fp32-ws1-b64", "mlp-ddp-fp32-ws2-b64")  # least telling first
    assert choice_text(found, 400) is None


def test_one_case_is_chosen_however_short_the_budget_is():
    found = chosen(matched_of(make_cases()), budget_s=1)

    assert [case.id for case in found.cases] == ["mlp-ddp-fp32-ws2-b64"]
    assert [one.case_id for one in found.left_out] == ["mlp-none-fp32-ws1-b64"]


def test_what_this_machine_cannot_run_does_not_count_and_what_a_side_lacks_does():
    too_large = MissingSide(case_id="large", reason="needs 16 CUDA devices", unfit=True)
    lacking = MissingSide(case_id="new", reason="side A has no such case")

    found = chosen(matched_of([make_case()], [too_large, lacking]), budget_s=1)

    assert (found.missing, found.left_out) == ((lacking,), (too_large,))
