"""Files that say nonsense: real ones, changed at random, and what their readers make of them."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from ddp_perf.baselines.store import read_baseline
from ddp_perf.baselines.work import WorkStore
from ddp_perf.config.cluster_file import read_cluster_file
from ddp_perf.config.loading import Overrides, load_cases
from ddp_perf.errors import DdpPerfError
from ddp_perf.session.result import read_results, results_json
from ddp_perf.traces.chrome import read_chrome_trace
from tests.reports import make_suite_result

ROOT = Path(__file__).parents[2]
NONSENSE = (
    *(None, True, -1, 0, 2**63, 10**400, 1e308, -1e-308, "", "../../etc/passwd", "\ud800", "\0"),
    *("NaN", [], {}, [[]], "x" * 10_000, "<script>", "9999-99-99T99:99:99"),
)
CLUSTER = b"nnodes: 2\nnproc_per_node: 1\n"


class Reader(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of file: its name, a real one, and the function that reads it."""

    kind: str
    name: str
    seed: Callable[[], bytes]
    read: Callable[[Path], object]


def _trace() -> bytes:
    path = ROOT / "tests/unit/traces/recorded/a100_ws2.json.gz"
    trace = json.loads(gzip.decompress(path.read_bytes()))
    return json.dumps({**trace, "traceEvents": trace["traceEvents"][:200]}).encode()


def _work(path: Path) -> object:
    structures = path.parent / "structure"
    structures.mkdir(exist_ok=True)
    path.rename(structures / path.name)
    try:
        return WorkStore(path.parent).structures(path.stem)
    finally:
        (structures / path.name).rename(path)


READERS = (
    Reader(
        kind="a suite",
        name="suite.yaml",
        seed=(ROOT / "bench_configs/mlp_scaling.yaml").read_bytes,
        read=lambda path: load_cases([path], Overrides()),
    ),
    Reader(kind="a cluster file", name="c.yaml", seed=lambda: CLUSTER, read=read_cluster_file),
    Reader(
        kind="a baseline",
        name="t4.json",
        seed=(ROOT / "baselines/t4.json").read_bytes,
        read=read_baseline,
    ),
    Reader(
        kind="structures",
        name="mlp_scaling.json",
        seed=(ROOT / "baselines/structure/mlp_scaling.json").read_bytes,
        read=_work,
    ),
    Reader(
        kind="results",
        name="results.json",
        seed=lambda: results_json([make_suite_result()], complete=True),
        read=read_results,
    ),
    Reader(kind="a trace", name="trace.json", seed=_trace, read=read_chrome_trace),
)


def changed(data: bytes, draw: random.Random) -> bytes:
    """Return the file with bytes that are cut, flipped or repeated, or with a nonsense value."""
    kind = draw.randrange(4)
    place = draw.randrange(len(data))
    if kind == 0:
        return data[:place]
    if kind == 1:
        return data[:place] + bytes([draw.randrange(256)]) + data[place + 1 :]
    if kind == 2:
        return data[:place] + data[place // 2 :]
    try:
        value = json.loads(data)
    except ValueError:  # YAML: a word is another
        words = data.split(b" ")
        words[draw.randrange(len(words))] = json.dumps(draw.choice(NONSENSE)).encode()
        return b" ".join(words)
    return json.dumps(_replaced(value, draw)).encode("utf-8", "surrogatepass")


def _replaced(value: Any, draw: random.Random) -> Any:
    """Return the document with one value, at any depth, replaced, removed or named twice."""
    if not value or not isinstance(value, (dict, list)) or draw.random() < 0.1:
        return draw.choice(NONSENSE)
    if isinstance(value, list):
        place = draw.randrange(len(value))
        return [*value[:place], _replaced(value[place], draw), *value[place + 1 :]]
    key = draw.choice(list(value))
    if draw.random() < 0.1:
        return {name: one for name, one in value.items() if name != key}
    if draw.random() < 0.1:
        return {**value, str(draw.choice(NONSENSE)): value[key]}
    return {**value, key: _replaced(value[key], draw)}


def refusal(reader: Reader, data: bytes, directory: Path) -> str | None:
    """Return how a reader refuses the file; None: it reads it. Any other error is a fault."""
    path = directory / reader.name
    path.write_bytes(data)
    try:
        reader.read(path)
    except DdpPerfError as error:
        return str(error)
    return None
