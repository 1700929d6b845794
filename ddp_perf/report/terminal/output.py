"""The output of a suite's ranks: its folder, and the choice that NCCL's lines state."""

from __future__ import annotations

import os
from collections.abc import Iterator

from ddp_perf.core.launch import KeptOutput, NcclChoice
from ddp_perf.render.tables import short_names
from ddp_perf.render.units import counted
from ddp_perf.session.result import SuiteResult


def output_lines(result: SuiteResult) -> list[str]:
    """Return warnings, what NCCL chose, the folders of the outputs, and why one is not kept."""
    kept = dict(_kept(result))
    names = short_names(result.measurements)
    chosen: dict[str, list[str]] = {}
    for case_id, output in kept.items():
        if output.nccl is not None:
            chosen.setdefault(_choice(output.nccl), []).append(names[case_id])
    lines = [f"WARNING: {warning}" for warning in result.warnings]
    lines += [f"{', '.join(cases)}: {choice}" for choice, cases in chosen.items()]
    written = [os.path.relpath(f"{out.directory}/.") for out in kept.values() if not out.problem]
    if written:
        where = written[0] if len(written) == 1 else os.path.commonpath(written)
        lines.append(f"printed by the ranks of {counted(len(written), 'case')}: {where}")
    problems = [f"{names[id_]}: {one.problem}" for id_, one in kept.items() if one.problem]
    return [*lines, *(f"the ranks' output is not kept: {problem}" for problem in problems)]


def _kept(result: SuiteResult) -> Iterator[tuple[str, KeptOutput]]:
    for case_id, measurement in result.measurements.items():
        for launch in measurement.launches:
            if launch.output is not None:
                yield case_id, launch.output


def _choice(nccl: NcclChoice) -> str:
    """Return the choice as ``NCCL 2.27.5, 24 channels (16 NVLS), via P2P/CUMEM``."""
    parts = [f"NCCL {nccl.version}" if nccl.version else "NCCL"]
    if nccl.channels is not None:
        nvls = f" ({nccl.nvls_channels} NVLS)" if nccl.nvls_channels else ""
        parts.append(f"{counted(nccl.channels, 'channel')}{nvls}")
    if nccl.transports:
        parts.append(f"via {' and '.join(nccl.transports)}")
    return ", ".join([*parts, *nccl.algorithms])
