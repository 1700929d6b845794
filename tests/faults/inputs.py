"""Files that say nonsense: real ones, changed at random, and what their readers make of them."""

from __future__ import annotations

import contextlib
import gzip
import json
import random
import resource
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from ddp_perf.baselines.store import read_baseline
from ddp_perf.baselines.work import WorkStore
from ddp_perf.config.cluster_file import read_cluster_file
from ddp_perf.config.loading import Overrides, load_cases
from ddp_perf.errors import DdpPerfError, LaunchError
from ddp_perf.history.store import HistoryStore
from ddp_perf.launch.protocol import own_hello, read_hello
from ddp_perf.session.measure.experiment import LoggedLaunch
from ddp_perf.session.result import read_results, results_json
from ddp_perf.system.ledger import Ledger
from ddp_perf.traces.chrome import read_chrome_trace
from tests.builders import RUNTIME, make_case, make_launch
from tests.histories import fill_history
from tests.reports import make_suite_result

ROOT = Path(__file__).parents[2]
NONSENSE = (
    *(None, True, -1, 0, 2**63, 10**400, 1e308, -1e-308, "", "../../etc/passwd", "\ud800", "\0"),
    *("NaN", [], {}, [[]], "x" * 10_000, "<script>", "9999-99-99T99:99:99"),
)
CLUSTER = b"nnodes: 2\nnproc_per_node: 1\n"
SCRIPT = f"""suite: own
tier: cpu
script: {__file__}
args: [--size, '64']
world_sizes: [1]
batch_sizes: [8]
steps: 8
"""
MOST_MEMORY = 500 * 2**20


class Reader(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of file: where it is, a real one, and the function that reads it."""

    kind: str
    name: str  # below a directory
    seed: Callable[[], bytes]
    read: Callable[[Path], object]


def _nine(level: int) -> bytes:
    """Return a list of nine aliases of the level below, in YAML."""
    return b"%c: &%c [%s]\n" % (98 + level, 98 + level, b",".join([b"*%c" % (97 + level)] * 9))


def _trace() -> bytes:
    path = ROOT / "tests/unit/traces/recorded/a100_ws2.json.gz"
    trace = json.loads(gzip.decompress(path.read_bytes()))
    return json.dumps({**trace, "traceEvents": trace["traceEvents"][:200]}).encode()


def _log() -> bytes:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "log"
        with contextlib.closing(Ledger(path, LoggedLaunch, {"host": "a"})) as log:
            for number in range(3):
                log.append(
                    LoggedLaunch(
                        block=number,
                        turn=0,
                        arms=1,
                        case_id="mlp",
                        arm="A",
                        started="2026-01-01T00:00:00+00:00",
                        ready_s=0.1,
                        wall_s=1.0,
                        result=make_launch(make_case(), number),
                    )
                )
        return path.read_bytes()


def _read_hello(path: Path) -> None:
    try:
        read_hello(path.read_bytes(), "ddp_perf")
    except LaunchError as error:  # which names the package
        raise LaunchError(f"{path}: {error}") from None


def _read_log(path: Path) -> None:
    Ledger(path, LoggedLaunch, {"host": "a"}).close()


def _history() -> bytes:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "history.sqlite"
        fill_history(f"sqlite:///{path}", cases=2, sessions=4)
        return path.read_bytes()


def _read_history(path: Path) -> None:
    with contextlib.closing(HistoryStore(f"sqlite:///{path}", create=False)) as store:
        store.records()
        store.audits()
        for case in store.cases():
            store.series(case, "step_time")


READERS = (
    Reader(
        kind="a suite",
        name="suite.yaml",
        seed=(ROOT / "bench_configs/mlp_scaling.yaml").read_bytes,
        read=lambda path: load_cases([path], Overrides()),
    ),
    Reader(
        kind="a suite of a script",
        name="own.yaml",
        seed=SCRIPT.encode,
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
        name="structure/mlp_scaling.json",
        seed=(ROOT / "baselines/structure/mlp_scaling.json").read_bytes,
        read=lambda path: WorkStore(path.parents[1]).structures(path.stem),
    ),
    Reader(
        kind="results",
        name="results.json",
        seed=lambda: results_json([make_suite_result()], complete=True),
        read=read_results,
    ),
    Reader(kind="a trace", name="trace.json", seed=_trace, read=read_chrome_trace),
    Reader(
        kind="a zipped trace",
        name="trace.json.gz",
        seed=lambda: gzip.compress(_trace(), mtime=0),
        read=read_chrome_trace,
    ),
    Reader(kind="a log of launches", name="log.jsonl", seed=_log, read=_read_log),
    Reader(kind="a history", name="history.sqlite", seed=_history, read=_read_history),
    Reader(
        kind="what a server says",
        name="hello",
        seed=lambda: own_hello(RUNTIME),
        read=_read_hello,
    ),
)
_LEVELS = (b"a: &a [1]\n", *(_nine(level) for level in range(9)))
HOSTILE = {
    "lists within lists without end": b"[" * 200_000,
    "tables within tables without end": b'{"a":' * 200_000,
    "aliases of aliases": b"".join(_LEVELS),
    "an alias within itself": b"a: &a [*a]\n",
    "code in YAML": b"suite: !!python/object/apply:os.system ['true']\n",
    "UTF-16": "suite: x".encode("utf-16"),
    "Latin-1": "suite: é".encode("latin-1"),
    "a mark of byte order": b"\xef\xbb\xbf[]",
    "zeros": b"\0" * 100,
    "a huge number": b"suite: " + b"9" * 100_000,
    "a name that is there twice": b'{"suite": 1, "suite": 2, "schema_version": 1}',
    "gigabytes that are zipped": gzip.compress(b" " * 2**28, mtime=0),
}


def _cut(data: bytes, draw: random.Random) -> bytes:
    return data[: draw.randrange(len(data))]


def _other_byte(data: bytes, draw: random.Random) -> bytes:
    place = draw.randrange(len(data))
    return data[:place] + bytes([draw.randrange(256)]) + data[place + 1 :]


def _repeated(data: bytes, draw: random.Random) -> bytes:
    place = draw.randrange(len(data))
    return data[:place] + data[place // 2 :]


def _nonsense(data: bytes, draw: random.Random) -> bytes:
    """Return the document, or one of its lines, with another value; else with another word."""
    lines = data.split(b"\n")
    place = draw.randrange(max(len(lines) - 1, 1))
    try:
        value = json.loads(lines[place])
    except ValueError:  # YAML, or no text
        words = data.split(b" ")
        words[draw.randrange(len(words))] = json.dumps(draw.choice(NONSENSE)).encode()
        return b" ".join(words)
    lines[place] = json.dumps(_replaced(value, draw)).encode("utf-8", "surrogatepass")
    return b"\n".join(lines)


CHANGES: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "a file is cut": _cut,
    "a byte is another one": _other_byte,
    "a part is there twice": _repeated,
    "a value or a word is nonsense": _nonsense,
}


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
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    try:
        reader.read(path)
    except DdpPerfError as error:
        return str(error)
    return None


def is_named(reader: Reader, directory: Path, error: str) -> bool:
    """Return whether a refusal names the file, in a line or two that a user can read."""
    return str(directory / reader.name) in error and error.count("\n") < 2


@contextlib.contextmanager
def little_memory() -> Iterator[None]:
    """Let this process take `MOST_MEMORY` more than it has: what needs more is a MemoryError."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    most = pages * resource.getpagesize() + MOST_MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
