"""Emulated cases never take the place of real ranks in what is measured first."""

from __future__ import annotations

import msgspec

from ddp_perf.session.measure.nights import core_of, most_telling_first
from tests.builders import make_cases

NETWORK = "intra=1GB/s"


def cases(core):
    found = make_cases(world_sizes=[1, 2, 4], emulated=[8, 64], network=NETWORK)
    return [msgspec.structs.replace(case, core=core) for case in found]


def fits(case):
    return True


def test_the_core_has_the_most_real_ranks_and_the_most_emulated_ones():
    found = core_of(cases(("*",)), fits)

    assert sorted(case_id for _, case_id in found) == [
        "mlp-ddp-fp32-ws4-b64",
        "mlp-ddp-fp32-ws64-emulated-b64",
        "mlp-none-fp32-ws1-b64",
    ]


def test_real_ranks_come_before_emulated_ones():
    ranked = most_telling_first(cases(None), fits)
    assert [case.world_size for case in ranked] == [4, 2, 64, 8, 1]
