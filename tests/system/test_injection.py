"""Each injection shows in real ranks by a sign of its own: exact where it can be, else large."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from ddp_perf.core.injection import parse_injection
from ddp_perf.core.result import Collective, LaunchResult
from ddp_perf.system.processes import state_of

SETTLED = 3  # first steps, in which DDP rebuilds its buckets


class Ranks:
    """What the ranks of one launch measured, and noted in each step."""

    def __init__(self, result, notes):
        self.result = result
        self.structure = result.ranks[0].structure
        self.collectives = Counter(self.structure.collectives)
        self.notes = notes

    def typical(self, name, rank=0):
        """Median of a measured series of a rank."""
        return statistics.median(getattr(self.result.ranks[rank], name))

    def noted(self, name, rank=0):
        return [step[name] for step in self.notes[rank][SETTLED:]]


@pytest.fixture
def ranks(launcher, request_of, tmp_path):
    """``ranks("data:5ms", …)``: launch the watched workload with these injections."""

    def launch(*texts, width=32, **changes):
        model = {"notes": str(tmp_path / "notes"), "width": width}
        request = request_of("watched:build", model, **changes)
        injections = tuple(map(parse_injection, texts))
        result = launcher.launch(msgspec.structs.replace(request, injections=injections))
        assert isinstance(result, LaunchResult), str(result)
        files = [tmp_path / f"notes.{rank}" for rank in range(request.case.world_size)]
        return Ranks(result, [[json.loads(row) for row in file.read_text().splitlines()] for file in files])

    return launch


@pytest.fixture
def plain(ranks):
    return ranks()


def test_compute_costs_cpu_time_in_proportion(ranks):
    before, after = ranks(width=256, batch_sizes=[64]), ranks("compute:100%", width=256, batch_sizes=[64])
    print(before.typical("cpu_s"), after.typical("cpu_s"), before.typical("step_s"), after.typical("step_s"))
    assert after.typical("cpu_s") > 1.4 * before.typical("cpu_s")


def test_no_overlap(ranks, plain):
    a = ranks(ddp={"bucket_cap_mb": 0.005}) if False else plain
    b = ranks("no-overlap")
    c = ranks("small-buckets:1KB"); d= ranks("small-buckets:1KB", "no-overlap")
    for r in (a, b, c, d):
        print(r.result.ranks[0].digest, r.structure, r.noted("issued"))
    for t in ("extra-allreduce:4096","sync-each-step","memory:64MB","data:20ms","straggler:1:20ms","cpu-hog:3"):
        r = ranks(t)
        print(t, r.collectives - plain.collectives, r.result.ranks[0].peak_memory - plain.result.ranks[0].peak_memory, [(r.typical("step_s", k), r.typical("cpu_s", k), statistics.median(r.noted("gap_s", k)), r.noted("children", k)[-1]) for k in (0,1)])
