"""Emulated against measured: two ranks on two hosts with a limited link, and nine edits.

    python benchmarks/emulation [--rounds N] [--write]
    python benchmarks/emulation --show                     what is recorded

The hosts are network namespaces, each with one core and a cable between them (``cable.py``), and a
reader of gloo that shares its core (``gloo_reader.c``). For each cable the link is measured by
all-reduces (``link.py``); then each case is launched on both hosts and emulated, in turn. The error
of the model was chosen at the first six cables, and its faults were found there. The others are
held out.
It needs root, iproute2, a C compiler and two cores.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import math
import random
import shlex
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.emulation.cable import Cable, joined_by
from benchmarks.emulation.each_core import OnEachCore
from benchmarks.emulation.edits import BASES, EDITS, Edit, injections_of
from benchmarks.emulation.link import SIZES
from ddp_perf.config.cases import Variant, cases_of
from ddp_perf.config.loading import checked_suite
from ddp_perf.config.network import network_text
from ddp_perf.core.launch import LaunchRequest, LaunchResult
from ddp_perf.launch.engines.hosts import Hosts
from ddp_perf.launch.server_launcher import ServerLauncher
from ddp_perf.stats.interval import ratio_of_positive
from ddp_perf.stats.link import LinkPoint
from ddp_perf.stats.link_fit import fit_link
from ddp_perf.stats.model_error import MODEL_ERROR
from ddp_perf.stats.step_decomposition import decompose
from tests.system.two_hosts import MBIT, TwoHosts, obstacle, two_hosts

RECORDED = Path(__file__).parents[1] / "data/emulation.json"


def _cables(bandwidths: Mapping[str, int], delays_ms: Sequence[float]) -> dict[str, Cable]:
    return {
        f"{name}, {delay:g} ms": Cable(megabits * MBIT, delay / 1000)
        for name, megabits in bandwidths.items()
        for delay in delays_ms
    }


CHOSEN_AT = _cables({"1 Gbit/s": 1000, "2 Gbit/s": 2000, "500 Mbit/s": 500}, (0.2, 1))
HELD_OUT = _cables({"300 Mbit/s": 300, "700 Mbit/s": 700, "1.4 Gbit/s": 1400}, (0.4, 0.7))
CABLES = CHOSEN_AT | HELD_OUT
_CONNECTIONS = 3
_ROOT = Path(__file__).parents[2]
_LINK = "benchmarks.emulation.link"
_READER = Path(__file__).with_name("gloo_reader.c")


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A case: measured and emulated steps in turn."""

    name: str
    base: str | None  # None: it is one
    measured_s: tuple[float, ...]
    emulated_s: tuple[float, ...]
    measured_exposed_s: float | None
    emulated_exposed_s: float | None


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured over one cable: the network of its link, and its cases."""

    date: str
    commit: str
    network: str
    rows: tuple[Row, ...]


Recorded = dict[str, Run]  # by cable


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cable", action="append", choices=list(CABLES))
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--show", action="store_true")
    asked = parser.parse_args(arguments)
    if asked.show:
        runs = recorded()
        show(runs)
        print(*conclusion(runs), sep="\n")
        return 0
    if why := obstacle():
        sys.exit(why)
    runs = {}
    with tempfile.TemporaryDirectory() as directory, two_hosts() as hosts:
        shell = shell_of(hosts, Path(directory))
        for cable in asked.cable or CABLES:
            with joined_by(hosts, CABLES[cable]):
                network = measured_network(hosts, shell)
                rows = tuple(compare(hosts, shell, network, asked.rounds))
            run = Run(date=_today(), commit=_commit(), network=network, rows=rows)
            show({cable: run})
            runs[cable] = run
            if asked.write:
                done = {**recorded(), **runs}
                RECORDED.write_bytes(msgspec.json.format(msgspec.json.encode(done)) + b"\n")
    print(*conclusion(runs), sep="\n")
    return 0


def recorded() -> Recorded:
    """Return what is recorded, by cable."""
    return msgspec.json.decode(RECORDED.read_bytes(), type=Recorded)


def shell_of(hosts: TwoHosts, directory: Path) -> str:
    """Return the ``node_shell`` of the hosts, each with a core of its own."""
    library = directory / "gloo_reader.so"
    build = ["cc", "-O2", "-shared", "-fPIC", "-o", str(library), str(_READER)]
    subprocess.run(build, check=True)
    pin = directory / "pin"
    pin.write_text(
        f'case "$1" in {hosts.names[0]}) core=0;; *) core=1;; esac\n'
        f'shift\nLD_PRELOAD={library} exec taskset -c $core "$@"\n',
        encoding="utf-8",
    )
    return f"sh {pin} {{node}} {hosts.shell}"


def measured_network(hosts: TwoHosts, shell: str) -> str:
    """Return the link between the hosts as the text of a suite, with the intervals of its fit.

    Each connection takes other CPU time for a byte, by how its packets fall: several are made.
    """
    found = [_connection(hosts, shell) for _ in range(_CONNECTIONS)]
    points = [
        LinkPoint(payload=size, seconds=seconds)
        for size in SIZES
        for one in found
        for seconds in one["times"][str(size)]
    ]
    fit = fit_link(points, kind="all_reduce", ranks=2)
    if fit is None:
        sys.exit(f"the times do not determine the link: {found}")
    ends = [1e9 * seconds for one in found for seconds in one["busy"]]
    return f"{network_text(fit)},busy={max(min(ends), 1e-4):.4f}-{max(ends):.4f}ns/B"


def _connection(hosts: TwoHosts, shell: str) -> dict[str, Any]:
    """Return what ``link.py`` measures on the hosts."""
    ranks = []
    for rank, name in enumerate(hosts.names):
        program = [sys.executable, "-m", _LINK, str(rank), hosts.addresses[0]]
        command = [*shlex.split(shell.format(node=name)), f"exec {shlex.join(program)}"]
        ranks.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=_ROOT))
    found: dict[str, Any] = json.loads(next(rank.communicate(timeout=300)[0] for rank in ranks))
    ranks[1].wait()
    return found


def compare(hosts: TwoHosts, shell: str, network: str, rounds: int) -> Iterator[Row]:
    """Launch every case on both hosts and emulated, in random order in each round."""
    subjects = {**BASES, **{edit.name: edit for edit in EDITS}}
    requests = {name: requests_of(edit, network) for name, edit in subjects.items()}
    found: dict[tuple[str, str], list[LaunchResult]] = {}
    order = random.Random(0)
    with _launchers(hosts, shell) as both:
        for number in range(rounds):
            turns = [(name, kind) for name in subjects for kind in both]
            for name, kind in order.sample(turns, len(turns)):
                request = msgspec.structs.replace(requests[name][kind], round=number)
                outcome = both[kind].launch(request)
                if not isinstance(outcome, LaunchResult):
                    sys.exit(f"{name}, {kind}: {outcome}")
                found.setdefault((name, kind), []).append(outcome)
            print(f"  round {number + 1} of {rounds}", flush=True)
    for name, edit in subjects.items():
        measured, emulated = (found[name, kind] for kind in ("measured", "emulated"))
        base = None if name in BASES else edit.base
        yield Row(
            name=name,
            base=base,
            measured_s=tuple(each.typical_step_s for each in measured),
            emulated_s=tuple(each.typical_step_s for each in emulated),
            measured_exposed_s=exposed_s(measured),
            emulated_exposed_s=exposed_s(emulated),
        )


def requests_of(edit: Edit, network: str) -> dict[str, LaunchRequest]:
    """Return the launch of the edited suite on two hosts, and of one emulated rank."""
    injections, fields = injections_of(edit), edit.suite
    (real,) = cases_of(Variant(suite=checked_suite({**fields, "suite": "a", "world_sizes": [2]})))
    alone = {**fields, "suite": "a", "world_sizes": [1], "emulated": [2], "network": network}
    _, one = cases_of(Variant(suite=checked_suite(alone)))
    real = msgspec.structs.replace(real, nodes=2)
    common: dict[str, Any] = {"round": 0, "injections": injections, "probe_steps": 4}
    return {
        "measured": LaunchRequest(case=real, **common),
        "emulated": LaunchRequest(case=one, paired=True, **common),
    }


@contextlib.contextmanager
def _launchers(hosts: TwoHosts, shell: str) -> Iterator[dict[str, Any]]:
    """Open the launchers: two hosts, each with a core of its own, and these cores."""
    endpoint = f"{hosts.addresses[0]}:29400"
    engine = Hosts(hosts.names, node_shell=shell, endpoint=endpoint)
    both: dict[str, Any] = {"measured": ServerLauncher(engine), "emulated": OnEachCore()}
    with contextlib.ExitStack() as stack:
        for launcher in both.values():
            stack.callback(launcher.close)
        yield both


def exposed_s(launches: list[LaunchResult]) -> float | None:
    """Return the median exposed communication of the launches that measured it."""
    terms = [found for launch in launches if (found := decompose(launch)) is not None]
    return statistics.median(one.terms["exposed"] for one in terms) if terms else None


# What the rows say.


class Change(NamedTuple):
    """The change of a step by an edit, as a share of the base's step."""

    ratio: float
    low: float
    high: float

    @property
    def is_certain(self) -> bool:
        return not self.low <= 1 <= self.high


def change(edit: tuple[float, ...], base: tuple[float, ...]) -> Change:
    """Return the change over the rounds. Both launches of a round drew the same link."""
    found = ratio_of_positive(edit, base)
    assert found is not None  # several rounds
    assert found.interval is not None
    return Change(found.ratio, *found.interval)


def show(runs: Recorded) -> None:
    """Print a table of each cable."""
    for cable, run in runs.items():
        print(f"{cable}: {run.network} ({run.date}, {run.commit})")
        print(*lines(run.rows), sep="\n", flush=True)


def lines(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the table of one cable."""
    bases = {row.name: row for row in rows if row.base is None}
    for row in rows:
        m, e = statistics.median(row.measured_s), statistics.median(row.emulated_s)
        text = f"  {row.name:38} {1e3 * m:7.1f} {1e3 * e:7.1f} ms ({e / m - 1:+.1%})"
        if row.measured_exposed_s is not None and row.emulated_exposed_s is not None:
            exposed = 1e3 * row.measured_exposed_s, 1e3 * row.emulated_exposed_s
            text += f"  exposed {exposed[0]:6.1f} {exposed[1]:6.1f}"
        if row.base is not None:
            one, other = changes(row, bases[row.base])
            text += f"  {_percent(one)} | {_percent(other)} {', '.join(verdict(other, one))}"
        yield text


def changes(row: Row, base: Row) -> tuple[Change, Change]:
    """Return the measured and the emulated change, with intervals of 95 %.

    The emulated one is widened as that of a duel, for the model.
    """
    emulated = change(row.emulated_s, base.emulated_s)
    log, half = math.log(emulated.ratio), math.log(emulated.high / emulated.low) / 2
    half = MODEL_ERROR.widened(half, log)
    stated = Change(emulated.ratio, math.exp(log - half), math.exp(log + half))
    return change(row.measured_s, base.measured_s), stated


def verdict(emulated: Change, measured: Change) -> tuple[str, str]:
    """Return whether the sign and the size of the emulated change are those of the measured one."""
    same = (emulated.ratio > 1) == (measured.ratio > 1)
    if not measured.is_certain:
        sign = "sign of nothing measured" if emulated.is_certain else "no sign measured"
    elif emulated.is_certain:
        sign = "sign" if same else "WRONG SIGN"
    else:
        sign = "no sign" if same else "no sign, estimate of the other sign"
    is_inside = emulated.low <= measured.ratio <= emulated.high
    return sign, "size" if is_inside else "OTHER SIZE"


def _percent(one: Change) -> str:
    return f"{one.ratio - 1:+6.1%} ({one.low - 1:+.1%} to {one.high - 1:+.1%})"


def conclusion(runs: Recorded) -> Iterator[str]:
    """Yield how many edits had each sign and size, at the chosen cables and the held-out ones."""
    for which, cables in (("chosen at", CHOSEN_AT), ("held out", HELD_OUT)):
        verdicts = [
            verdict(emulated, measured)
            for cable, run in runs.items()
            if cable in cables
            for measured, emulated in edits_of(run)
        ]
        if verdicts:
            counts = [Counter(words).most_common() for words in zip(*verdicts, strict=True)]
            texts = (", ".join(f"{count} {word}" for word, count in one) for one in counts)
            yield f"{which}: {len(verdicts)} edits: {'; '.join(texts)}"


def edits_of(run: Run) -> Iterator[tuple[Change, Change]]:
    """Yield the measured and the emulated change of each edit."""
    bases = {row.name: row for row in run.rows if row.base is None}
    for row in run.rows:
        if row.base is not None:
            yield changes(row, bases[row.base])


def _today() -> str:
    return datetime.datetime.now(datetime.timezone.utc).date().isoformat()


def _commit() -> str:
    command = ["git", "rev-parse", "--short=8", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
