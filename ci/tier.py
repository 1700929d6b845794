"""Prints the tier that ci/bench measures, and to stderr what this machine can decide now.

The first argument states the tier; without one, GPUs are measured if there are any.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import get_args

from ddp_perf.core.case import Tier
from ddp_perf.errors import GpuError
from ddp_perf.report.commands.doctor import outlook
from ddp_perf.system.capacity import tier_of
from ddp_perf.system.gpu.gpus import find_gpus
from ddp_perf.system.gpu.nvml import NvmlReader
from ddp_perf.system.host.host import read_host_state

ERROR, USAGE = 3, 4


def main(arguments: Sequence[str]) -> int:
    known: tuple[Tier, ...] = get_args(Tier)
    tier = next((one for one in known if one in arguments), None)
    if arguments and tier is None:
        print(f"ci/bench: --tier takes {' or '.join(known)}", file=sys.stderr)
        return USAGE
    reader = NvmlReader()
    machine = find_gpus(reader=reader)
    try:
        tier = tier or tier_of(machine, meant="--tier cpu")
    except GpuError as error:
        print(f"ci/bench: {error}", file=sys.stderr)
        return ERROR
    health = reader.health(machine.gpus)
    print(f"bench: {outlook(tier, machine, health, read_host_state())}", file=sys.stderr)
    print(tier)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
