"""Outcomes of nodes."""

from __future__ import annotations

from ddp_perf.launch.nodes.engine import NodeEnd, NodeFacts, NodeOutcome, encode_outcome

FACTS = NodeFacts(torch="2.13.0", cuda="13.0", driver="580.65", accelerator="H200", gpus=8)


def make_outcome(**fields):
    return NodeOutcome(**{"facts": FACTS, **fields})


def make_end(node, outcome=None, *, output="", **fields):
    """The end of a node that printed its outcome, if it has one."""
    line = "" if outcome is None else encode_outcome(outcome)
    return NodeEnd(node=node, output=f"{output}\n{line}\n", **fields)
