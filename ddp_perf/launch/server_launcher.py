"""The launcher: it keeps warm servers on the nodes of an engine, and launches through them."""

from __future__ import annotations

import contextlib
import datetime
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ddp_perf.core.case import Case, Tier
from ddp_perf.core.launch import LaunchFailure, LaunchRequest, LaunchResult
from ddp_perf.core.subject import PACKAGES
from ddp_perf.core.work import CountRequest, StepWork
from ddp_perf.errors import LaunchError
from ddp_perf.launch.blame import NodeEnd, combine
from ddp_perf.launch.engine import Engine
from ddp_perf.launch.engines.machine import ThisMachine
from ddp_perf.launch.launcher import Runtime, ScratchDirectory, check_device_order
from ddp_perf.launch.node_facts import NodeFacts, describe_difference
from ddp_perf.launch.protocol import (
    MOST_PATIENCE_S,
    Answer,
    DescribeRequest,
    NodeLaunch,
    Request,
    patience_with,
)
from ddp_perf.launch.rank_server import RankServer, ServerLostError, answers_of, close_all
from ddp_perf.launch.supervisor.output import forget_output, keep_output
from ddp_perf.system.capacity import Capacity, named
from ddp_perf.system.files import replace_file


class _Key(NamedTuple):
    """The node, the environment and the workload of one server."""

    node: str  # "": the only one
    env: frozenset[tuple[str, str]]
    preloaded: tuple[str, ...]  # workloads of the package that are imported before the fork
    tier: Tier | None  # None: of any tier, where servers get no variables of the driver


class ServerLauncher:
    """A launcher that keeps one server per node, environment and preloaded workload.

    Torch and OpenMP read the environment when they are imported, so each environment needs its
    own server. A workload that takes long to import has its own server too: its ranks do not
    import it again, and the ranks of other workloads do not contain it.

    ``engine`` is where servers are started; None: on this machine. With ``each_node`` a launch has
    one of its nodes, so that one that is down costs no other one its launches. Use it from the main
    thread (see ``RankServer``).
    """

    def __init__(self, engine: Engine | None = None, *, each_node: bool = False) -> None:
        self._engine: Engine = ThisMachine() if engine is None else engine
        self._each_node = each_node
        self._servers: dict[_Key, RankServer] = {}
        self._facts: dict[tuple[str, Tier], NodeFacts] = {}  # of each node that has a name
        self._scratch: ScratchDirectory | None = None  # made for the first server

    def nodes(self, case: Case) -> tuple[str, ...]:
        return self._engine.nodes

    def runtime(self, case: Case | None = None) -> Runtime:
        """Return the versions on the first node, after a check that all nodes are alike."""
        tier = "cpu" if case is None else case.tier
        keys = self._keys(self._engine.nodes or ("",), tier, case)
        problems = self._start(keys)
        if self._engine.nodes:
            problems |= self._describe([key for key in keys if key.node not in problems], tier)
        started = [key for key in keys if key.node not in problems]
        if problems and not (self._each_node and started):
            raise LaunchError(next(iter(problems.values())))
        return self._servers[started[0]].runtime

    def capacity(self) -> Capacity:
        """Return the capacity of the first node, under the name that the engine has for it."""
        self.runtime()
        known = (node for node in self._engine.nodes if (node, "cpu") in self._facts)
        node = next(known)  # `runtime` has raised if there is none
        return named(self._facts[node, "cpu"].capacity, node)

    def launch(self, request: LaunchRequest) -> LaunchResult | LaunchFailure:
        if request.output is not None:
            forget_output(Path(request.output))
        case = request.case
        names = self._names(case.nodes, request.node)
        keys = self._keys(names, case.tier, case)
        problems = self._start(keys)
        started = datetime.datetime.now(datetime.timezone.utc)
        begin = time.monotonic()
        endpoint = self._engine.endpoint(names[0]) if case.nodes > 1 and not problems else None
        id_ = uuid.uuid4().hex
        messages = {
            key: NodeLaunch(request=request, number=number, endpoint=endpoint, id=id_)
            for number, key in enumerate(keys)
        }
        ends = self._asked(messages, problems, case)
        outcome = combine(request, ends)
        _write_files(request, ends)
        if isinstance(outcome, LaunchFailure):
            return outcome
        output = None
        if request.output is not None:
            output = keep_output(Path(request.output), _files("output", ends))
        facts = [self._facts.get((name, case.tier)) for name in names]
        return LaunchResult(
            case_id=case.id,
            round=request.round,
            ranks=outcome,
            started=started.isoformat(timespec="seconds"),
            wall_s=time.monotonic() - begin,
            output=output,
            node_hardware=tuple(
                one.hardware for one in facts if one and one.hardware and case.nodes > 1
            ),
        )

    def count(self, request: CountRequest) -> StepWork | LaunchFailure:
        """Count a step of one rank, on a CPU. Nothing is timed, so counts may run side by side.

        Raises LaunchError if ranks cannot be started.
        """
        launch = LaunchRequest(case=request.case, round=0)
        (key,) = self._keys(self._names(1, None), "cpu", request.case)
        (end,) = self._asked({key: request}, self._start([key]), request.case)
        if end.answer is not None and end.answer.counted is not None:
            return end.answer.counted
        outcome = combine(launch, [end])
        assert isinstance(outcome, LaunchFailure)
        return outcome

    def close(self) -> None:
        try:
            close_all(self._servers.values())
            self._servers.clear()
        finally:  # a second Ctrl-C gives the nodes back, too
            self._engine.close()
            if self._scratch is not None:
                self._scratch.close()
                self._scratch = None

    def _names(self, count: int, only: str | None) -> tuple[str, ...]:
        """Return the nodes of a launch. Raises LaunchError if the engine does not have them."""
        known = self._engine.nodes
        if only is not None:
            if only not in known:
                raise LaunchError(f"there is no node {only!r}; there are: {', '.join(known)}")
            return (only,)
        if count > max(len(known), 1):
            there = ", ".join(known) or "one; name several in a cluster file: --ddp-cluster FILE"
            raise LaunchError(f"the case needs {count} nodes, and there is {there}")
        return known[:count] or ("",)

    def _keys(self, names: Sequence[str], tier: Tier, case: Case | None) -> list[_Key]:
        env = {} if case is None else case.env
        if tier == "gpu":
            check_device_order({**self._engine.environ, **env})
        preloaded = (case.workload,) if case is not None and case.workload in PACKAGES else ()
        variables = frozenset(env.items())
        return [_Key(name, variables, preloaded, tier if name else None) for name in names]

    def _start(self, keys: Sequence[_Key]) -> dict[str, str]:
        """Start servers that do not run, all at once; return by node why one does not start.

        Raises LaunchError if the engine has no nodes, and if the only one does not start.
        """
        problems: dict[str, str] = {}
        new = [key for key in keys if key not in self._servers or self._servers[key].has_ended]
        try:
            for key in new:
                if key in self._servers:  # it ended between two launches: its node may be replaced
                    self._drop([key])
                with self._noted(key, problems):
                    self._scratch = self._scratch or ScratchDirectory()
                    scratch = self._scratch.path
                    transport = self._engine.transport(key.node, key.tier or "cpu", scratch)
                    directory = Path(tempfile.mkdtemp(prefix="server-", dir=scratch))
                    self._servers[key] = RankServer(
                        transport, dict(key.env), key.preloaded, directory
                    )
            for key in new:
                if key in self._servers:
                    with self._noted(key, problems, asks_engine=True):
                        self._servers[key].greet()
        finally:  # an interrupt leaves none of which nobody knows whether it has started
            self._drop(
                [key for key in new if key in self._servers and not self._servers[key].has_started]
            )
        return problems

    @contextlib.contextmanager
    def _noted(
        self, key: _Key, problems: dict[str, str], *, asks_engine: bool = False
    ) -> Iterator[None]:
        """Note that a named node cannot start a server. Raises LaunchError of the only node."""
        try:
            yield
        except LaunchError as error:
            if not key.node:
                raise
            why = (asks_engine and self._engine.loss(key.node)) or error
            problems[key.node] = f"node {key.node}: no rank can be started there: {why}"

    def _describe(self, keys: Sequence[_Key], tier: Tier) -> dict[str, str]:
        """Read the facts of nodes; return by node why it has none.

        Raises LaunchError if nodes differ that must be alike.
        """
        unknown = {
            key: DescribeRequest(tier=tier) for key in keys if (key.node, tier) not in self._facts
        }
        problems = {}
        for end, key in zip(self._asked(unknown, {}), unknown, strict=True):
            if end.answer is not None and end.answer.facts is not None:
                self._facts[end.node, tier] = end.answer.facts
            elif end.answer is not None:
                last = self._servers[key].output_tail(1) or "no output"
                problems[end.node] = f"node {end.node}: its facts cannot be read: {last}"
            else:
                problems[end.node] = f"node {end.node}: {end.lost}"
        known = [(node, facts) for (node, of), facts in self._facts.items() if of == tier]
        for node, facts in known[1:]:
            difference = describe_difference(known[0][1], facts, (known[0][0], node))
            if difference is not None:
                raise LaunchError(difference)
        return problems

    def _asked(
        self,
        messages: Mapping[_Key, Request],
        problems: Mapping[str, str],
        case: Case | None = None,
    ) -> list[NodeEnd]:
        """Return what each node answers, or how it is lost: the next request starts another server.

        Nothing is asked if the start had ``problems``. ``case`` is that of the messages, if any.
        """
        if problems:
            lost = {name: NodeEnd(node=name, lost=why) for name, why in problems.items()}
            return [lost.get(of.node, NodeEnd(node=of.node, answer=Answer())) for of in messages]
        # The network between nodes may be silent for a while.
        has_names = any(key.node for key in messages)
        patience_s = MOST_PATIENCE_S if case is None or has_names else patience_with(case)
        found = answers_of({key: self._servers[key] for key in messages}, messages, patience_s)
        return [self._end(key, found[key]) for key in messages]

    def _end(self, key: _Key, found: Answer | ServerLostError) -> NodeEnd:
        if isinstance(found, Answer):
            return NodeEnd(node=key.node, answer=found)
        output = self._servers[key].output_tail()
        loss = self._engine.loss(key.node)
        # All servers of a node are lost with it.
        same = [one for one in self._servers if one.node == key.node]
        self._drop([key] if loss is None else same)
        lost = loss or str(found)
        return NodeEnd(node=key.node, lost=lost, is_seen=loss is not None, output=output)

    def _drop(self, keys: Sequence[_Key]) -> None:
        servers = [self._servers.pop(key) for key in keys]
        close_all(servers)
        for server in servers:
            shutil.rmtree(server.directory, ignore_errors=True)


def _files(kind: str, ends: Sequence[NodeEnd]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for end in ends:
        if end.answer is not None:
            found |= getattr(end.answer, kind)
    return found


def _write_files(request: LaunchRequest, ends: Sequence[NodeEnd]) -> None:
    """Write records and traces into the directories that the request names."""
    profiling = None if request.profiling is None else request.profiling.directory
    for directory, kind in ((request.records, "records"), (profiling, "profiles")):
        # The outcome is more important than a file that cannot be written.
        with contextlib.suppress(OSError):
            for name, data in _files(kind, ends).items():
                if directory is None:
                    break  # code that is measured may send what nobody asked for
                Path(directory).mkdir(parents=True, exist_ok=True)
                replace_file(Path(directory) / name, data)
