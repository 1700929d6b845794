"""An engine whose servers are played: each answers what a test states."""

from __future__ import annotations

import contextlib
import os

import msgspec

from ddp_perf.errors import LaunchError
from ddp_perf.launch.node_facts import NodeFacts
from ddp_perf.launch.protocol import Answer, DescribeRequest, EndRequest
from ddp_perf.launch.rank_server import ServerLostError
from tests.builders import RUNTIME, make_capacity

FACTS = NodeFacts(
    torch="2.13.0",
    cuda="13.0",
    driver="580.65",
    accelerator="H200",
    gpus=8,
    capacity=make_capacity(),
)


class PlayedNode:
    """A node. ``answers``: one for each launch; an exception is raised; None: none comes.

    A node with ``problem`` cannot start a server.
    """

    def __init__(self, *answers, facts=FACTS, problem=None):
        self.answers, self.facts, self.problem = [*answers], facts, problem


class PlayedEngine:
    """Nodes by name. ``started`` are the variables of each server, and ``asked`` the requests."""

    def __init__(self, losses=None, **nodes):
        self.environ = dict(os.environ)
        self.played, self.losses = nodes, losses or {}
        self.started, self.asked, self.ended, self.closed = [], [], [], 0

    @property
    def nodes(self):
        return tuple(self.played)

    def transport(self, node, tier, scratch):
        if (problem := self.played[node].problem) is not None:
            raise LaunchError(problem)
        return self, node, tier

    def endpoint(self, node):
        return f"{node}:29400"

    def loss(self, node):
        return self.losses.get(node)

    def close(self):
        self.closed += 1


class PlayedServer:
    """In the place of a RankServer."""

    runtime, has_started, has_ended = RUNTIME, True, False

    def __init__(self, transport, variables, preloaded, directory):
        self._engine, self._node, tier = transport
        self._engine.started.append((self._node, tier, variables))
        self.directory = directory
        self._descriptors = os.pipe()
        self._answer = None

    def greet(self):
        pass

    def fileno(self):
        return self._descriptors[0]

    def ask(self, request):
        node = self._engine.played[self._node]
        self._engine.asked.append((self._node, request))
        if isinstance(request, DescribeRequest):
            self._answer = Answer(facts=node.facts)
        elif not isinstance(request, EndRequest):
            self._answer = node.answers.pop(0)
        if self._answer is not None:
            os.write(self._descriptors[1], b"x")

    def answer(self):
        if isinstance(self._answer, ServerLostError):
            raise self._answer
        if self._answer is not None:
            os.read(self._descriptors[0], 1)
        return self._answer

    def check_silence(self, patience_s):
        pass

    def output_tail(self, lines=20):
        return "the last line"

    def hang_up(self):
        pass

    goodbye_s, is_elsewhere, is_closed = 0.0, True, False

    def wait_until(self, end):
        pass

    def terminate(self):
        pass

    def close(self):
        self.kill()

    def kill(self):
        self._engine.ended.append(self._node)
        with contextlib.suppress(OSError):
            for descriptor in self._descriptors:
                os.close(descriptor)


def answer_of(result, **fields):
    return Answer(results=(result,), **fields)


def other_facts(**fields):
    return msgspec.structs.replace(FACTS, **fields)
