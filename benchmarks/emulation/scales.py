"""What emulation costs, and what the edits do to more ranks than there are.

    python benchmarks/emulation/scales.py [--pairs N]

First the observer effect: DDP over an emulated link that takes no time, against DDP over gloo with
one rank. Then each edit at 8, 64 and 256 ranks, in pairs of launches, with the time that they took.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from pathlib import Path

import msgspec

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.emulation.edits import BASES, EDITS, Edit, injections_of
from ddp_perf.config.cases import Variant, cases_of
from ddp_perf.config.loading import checked_suite
from ddp_perf.core.launch import LaunchRequest, LaunchResult
from ddp_perf.launch.server_launcher import ServerLauncher
from ddp_perf.stats.interval import PairedRatio, ratio_of_positive

NETWORK = "gpus_per_node=8,intra=1-1.2GB/s,inter=0.4-0.5GB/s,intra_latency=10us,inter_latency=30us"
INSTANT = "intra=999999GB/s,intra_latency=0.000001us"


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=3)
    asked = parser.parse_args(arguments)
    with contextlib.closing(ServerLauncher()) as launcher:
        plain = _request(Edit("plain", {"denominator": "ddp-1"}), None, 1)
        effect = _ratio(launcher, _request(BASES["DDP"], INSTANT, 2), plain, 8 * asked.pairs)
        print(f"a step over an emulated link without time ÷ over gloo alone: {_text(effect)}")
        for ranks in (8, 64, 256):
            for edit in EDITS:
                base = BASES[edit.base]
                begun = time.monotonic()
                found = _ratio(
                    launcher,
                    _request(edit, NETWORK, ranks),
                    _request(base, NETWORK, ranks),
                    asked.pairs,
                )
                took_s = time.monotonic() - begun
                print(f"{ranks:3} ranks, {edit.name:36} {_text(found)}, {took_s:.0f} s", flush=True)


def _request(edit: Edit, network: str | None, ranks: int) -> LaunchRequest:
    """Return the launch of a suite at so many ranks, emulated if there is a network."""
    fields = {**edit.suite, "suite": "a", "world_sizes": [1]}
    if network is not None:
        fields |= {"emulated": [ranks], "network": network}
    case = cases_of(Variant(suite=checked_suite(fields)))[-1]
    return LaunchRequest(case=case, round=0, injections=injections_of(edit))


def _ratio(
    launcher: ServerLauncher, first: LaunchRequest, second: LaunchRequest, pairs: int
) -> PairedRatio:
    """Return the step of the first launch ÷ that of the second, over pairs of launches."""
    times: tuple[list[float], list[float]] = [], []
    for number in range(pairs):
        both = list(zip((first, second), times, strict=True))
        for request, steps in both if number % 2 else reversed(both):
            outcome = launcher.launch(_of_round(request, number))
            if not isinstance(outcome, LaunchResult):
                sys.exit(str(outcome))
            steps.append(outcome.typical_step_s)
    found = ratio_of_positive(*times)
    assert found is not None  # there are pairs
    return found


def _of_round(request: LaunchRequest, number: int) -> LaunchRequest:
    return msgspec.structs.replace(request, round=number, paired=True)


def _text(found: PairedRatio) -> str:
    assert found.interval is not None  # several pairs
    low, high = found.interval
    return f"{found.ratio - 1:+6.1%} ({low - 1:+.1%} to {high - 1:+.1%})"


if __name__ == "__main__":
    main(sys.argv[1:])
