"""Compare ``ddp-perf trace`` with HolisticTraceAnalysis (HTA): values and times of real traces.

``python benchmarks/traces.py [FILE…]``, by default on the recorded excerpts. HTA runs where
``--hta PYTHON`` names an interpreter that can import it (``pip install HolisticTraceAnalysis``);
without one our own values and times are printed. Each tool reads each file several times, in
turns, in a process of its own that has imported everything before; the medians are compared.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RECORDED = ROOT / "tests" / "unit" / "traces" / "recorded"

_OURS = """
import json, sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from ddp_perf.render.units import to_json
from ddp_perf.traces.analysis import (analyse_traces)
begin = time.perf_counter(), time.process_time()
analysis = analyse_traces([Path(sys.argv[1])])
to_json(analysis)
wall, cpu = time.perf_counter() - begin[0], time.process_time() - begin[1]
(rank,) = analysis.ranks
hta, split = rank.hta, rank.split
print(json.dumps(dict(
    wall_s=wall, cpu_s=cpu, clean=split.overlap and 100 * split.overlap,
    computation=hta and hta.computation_s * 1e6, idle=hta and hta.idle_s * 1e6,
    other=hta and hta.other_s * 1e6, overlap=hta and hta.overlap and 100 * hta.overlap)))
"""

_HTA = """
import json, logging, sys, time, warnings
logging.disable(logging.CRITICAL)
warnings.filterwarnings("ignore")
from hta.trace_analysis import TraceAnalysis
begin = time.perf_counter(), time.process_time()
analysis = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir=".")
times = analysis.get_temporal_breakdown(visualize=False).iloc[0]
overlap = analysis.get_comm_comp_overlap(visualize=False).iloc[0]
wall, cpu = time.perf_counter() - begin[0], time.process_time() - begin[1]
print(json.dumps(dict(
    wall_s=wall, cpu_s=cpu, computation=float(times["compute_time(us)"]),
    idle=float(times["idle_time(us)"]), other=float(times["non_compute_time(us)"]),
    overlap=float(overlap["comp_comm_overlap_pctg"]))))
"""


def _run(python: str, code: str, *arguments: str) -> dict[str, Any]:
    done = subprocess.run(
        [python, "-c", code, *arguments], capture_output=True, text=True, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _compare(path: Path, hta: str | None, repeats: int) -> list[str]:
    ours, theirs = [], []
    for _ in range(repeats):
        ours.append(_run(sys.executable, _OURS, str(path), str(ROOT)))
        if hta is not None:
            theirs.append(_run(hta, _HTA, str(path)))
    us = ours[0]
    lines = [f"{path.name}: overlap {_value(us['clean'], '%')} over all events of the trace"]
    for name, unit in (("computation", "µs"), ("idle", "µs"), ("other", "µs"), ("overlap", "%")):
        line = f"  {name:12} {_value(us[name], unit):>14}"
        if theirs:
            line += f"   HTA {_value(theirs[0][name], unit):>14}"
        lines.append(line + "   over HTA's selection of events")
    for name, of in (("wall_s", "wall"), ("cpu_s", "CPU")):
        own = statistics.median(run[name] for run in ours)
        line = f"  {of + ' time':12} {own * 1e3:11.0f} ms"
        if theirs:
            peer = statistics.median(run[name] for run in theirs)
            line += f"   HTA {peer * 1e3:11.0f} ms   {peer / own:.1f} times as fast"
        lines.append(f"{line} (median of {repeats})")
    return lines


def _value(value: float | None, unit: str) -> str:
    return "–" if value is None else f"{value:,.{2 if unit == '%' else 0}f} {unit}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path, default=sorted(RECORDED.glob("*.json.gz")))
    parser.add_argument("--hta", metavar="PYTHON", help="an interpreter that can import hta")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    for path in options.files:
        print("\n".join(_compare(path, options.hta, options.repeats)), flush=True)


if __name__ == "__main__":
    main()
