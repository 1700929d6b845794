"""The extra warm-up: all ranks decide by the same figures."""

from __future__ import annotations

import json

from ddp_perf.core.launch import LaunchResult


def test_every_rank_receives_the_slowest_median_and_the_longest_window(
    launcher, request_of, tmp_path
):
    result = launcher.launch(request_of("agreeing:build", {"notes": str(tmp_path / "notes")}))

    assert isinstance(result, LaunchResult), str(result)
    notes = [json.loads((tmp_path / f"notes.{rank}").read_text()) for rank in (0, 1)]
    assert notes == [[2.0, 11.0], [2.0, 11.0]]


def test_a_rank_on_a_cpu_has_no_extra_warm_up(launcher, request_of, tmp_path):
    result = launcher.launch(request_of("agreeing:build", {"notes": str(tmp_path / "notes")}))

    assert [rank.extra_warmup for rank in result.ranks] == [None, None]
    assert [rank.numerics for rank in result.ranks] == [None, None]
