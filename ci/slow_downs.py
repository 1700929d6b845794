"""Check that an injection slows the step by what was asked, on one tier of this machine.

    python ci/slow_downs.py [--tier cpu|gpu] [--json FILE]

Each round launches the case as it is and with each injection, in turn; the slow-down is the median
of the rounds' ratios. Over two ranks, where the machine has them, a straggler must cost the step
its delay, and an extra all-reduce must be one collective more.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from ddp_perf.config.loading import Overrides, load_cases
from ddp_perf.core.case import Case
from ddp_perf.core.injection import parse_injection
from ddp_perf.core.launch import Collective, LaunchRequest, LaunchResult
from ddp_perf.launch.server_launcher import ServerLauncher
from ddp_perf.system.capacity import find_capacity
from ddp_perf.system.files import replace_file
from ddp_perf.system.lease import machine_lease

Tier = Literal["cpu", "gpu"]
ROUNDS = 5
SHARE_OFF = 0.25  # of what was asked: how far the measured slow-down may be off
COMPUTE = {"compute:5%": 0.05, "compute:10%": 0.10, "compute:20%": 0.20}
STRAGGLER, STRAGGLER_S = "straggler:1:5ms", 0.005
EXTRA = "extra-allreduce:4096"
BENCH_CONFIGS = Path(__file__).parents[1] / "bench_configs"
# Steps of several milliseconds, that a GPU computes and a host only starts.
SUITES: dict[Tier, tuple[str, int]] = {"cpu": ("cpu_quick", 128), "gpu": ("mlp_scaling", 4096)}


class SlowDown(msgspec.Struct, frozen=True, kw_only=True):
    """The slow-down of a case's step that was asked for, and the measured one."""

    case: str
    injection: str
    asked: str
    measured: str
    holds: bool


def main(tier: Tier, file: Path | None) -> int:
    machine = find_capacity().machine
    with contextlib.ExitStack() as stack:
        lease = machine_lease(patience_s=600, on_wait=print, gpus=machine.gpus)
        stack.enter_context(lease)
        launcher = stack.enter_context(contextlib.closing(ServerLauncher()))
        rows = slow_downs(tier, launcher)
    for row in rows:
        print(f"{row.case}: {row.injection}: asked {row.asked}, measured {row.measured}")
    if file is not None:
        replace_file(file, msgspec.json.encode(rows))
    missed = [row for row in rows if not row.holds]
    print(f"{len(missed)} of {len(rows)} miss what was asked by more than a quarter of it")
    return int(bool(missed))


def slow_downs(tier: Tier, launcher: ServerLauncher) -> list[SlowDown]:
    """Return a row for each injection. Those of two ranks need a machine for two."""
    name, batch_size = SUITES[tier]
    overrides = Overrides(world_sizes=(1, 2), batch_sizes=(batch_size,))
    one, two = load_cases([BENCH_CONFIGS / f"{name}.yaml"], overrides)
    launches = _launches(launcher, one, ["", *COMPUTE])
    rows = [
        _row(one, text, asked, _ratios(launches[text], launches[""]))
        for text, asked in COMPUTE.items()
    ]
    if find_capacity().obstacle(two) is None:
        launches = _launches(launcher, two, ["", STRAGGLER, EXTRA])
        plain_s = statistics.median(map(_typical_s, launches[""]))
        ratios = _ratios(launches[STRAGGLER], launches[""])
        rows.append(_row(two, STRAGGLER, STRAGGLER_S / plain_s, ratios))
        rows.append(_extra(two, launches[""][0], launches[EXTRA][0]))
    return rows


def _launches(
    launcher: ServerLauncher, case: Case, texts: Sequence[str]
) -> dict[str, list[LaunchResult]]:
    """Launch each injection ROUNDS times, round by round, so that a drift affects all alike."""
    done: dict[str, list[LaunchResult]] = {text: [] for text in texts}
    for round_ in range(ROUNDS):
        for text in texts:
            injections = (parse_injection(text),) if text else ()
            outcome = launcher.launch(
                LaunchRequest(case=case, round=round_, injections=injections, probe_steps=1)
            )
            if not isinstance(outcome, LaunchResult):
                raise SystemExit(str(outcome))
            done[text].append(outcome)
        print(f"{case.id}: round {round_ + 1} of {ROUNDS} is done", file=sys.stderr)
    return done


def _typical_s(launch: LaunchResult) -> float:
    return statistics.median(launch.step_s)


def _ratios(slowed: Sequence[LaunchResult], plain: Sequence[LaunchResult]) -> list[float]:
    return [_typical_s(s) / _typical_s(p) for s, p in zip(slowed, plain, strict=True)]


def _row(case: Case, text: str, asked: float, ratios: Sequence[float]) -> SlowDown:
    measured = statistics.median(ratios) - 1
    return SlowDown(
        case=case.id,
        injection=text,
        asked=f"{asked:+.1%}",
        measured=f"{measured:+.1%} ({min(ratios) - 1:+.1%} to {max(ratios) - 1:+.1%})",
        # All rounds but the least and the most: a median alone may agree by chance.
        holds=all(abs(r - 1 - asked) <= SHARE_OFF * asked for r in sorted(ratios)[1:-1]),
    )


def _extra(case: Case, plain: LaunchResult, slowed: LaunchResult) -> SlowDown:
    before, after = _collectives(plain), _collectives(slowed)
    wanted = Counter([Collective(kind="all_reduce", dtype="float32", bytes=4096)])
    more = ", ".join(f"{n} {c.kind} of {c.bytes} bytes" for c, n in (after - before).items())
    return SlowDown(
        case=case.id,
        injection=EXTRA,
        asked="1 all_reduce of 4096 bytes",
        measured=more or "nothing more",
        holds=after - before == wanted and not before - after,
    )


def _collectives(launch: LaunchResult) -> Counter[Collective]:
    structure = launch.ranks[0].structure
    return Counter(structure.collectives if structure else ())


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--tier", choices=["cpu", "gpu"], default="gpu")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    sys.exit(main(arguments.tier, arguments.json))
