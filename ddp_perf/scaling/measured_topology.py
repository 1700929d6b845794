"""The links within and between nodes that a session's suites of collectives determine."""

from __future__ import annotations

from collections.abc import Iterable

from ddp_perf.session.result import LinkFinding, SuiteResult
from ddp_perf.stats.link.model import Link, Topology

_KIND = "all_reduce"  # the most frequent collective of DDP


def measured_topology(suites: Iterable[SuiteResult]) -> Topology | None:
    """Return the links of the all-reduces, or None if they do not determine both.

    Within a node, that of the most ranks counts; between nodes, that of the most nodes. None as
    well if nodes have several numbers of ranks, or a swept environment makes several links.
    """
    found = [link for suite in suites for link in suite.links if link.kind == _KIND and link.fit]
    across = [link for link in found if link.nodes > 1]
    sizes = {link.ranks // link.nodes for link in across}
    if len(sizes) != 1 or len({str(link.env) for link in found}) != 1:
        return None
    (size,) = sizes
    within = [link for link in found if link.nodes == 1 and link.ranks <= size]
    if not within:
        return None
    return Topology(gpus_per_node=size, intra=_of_most_ranks(within), inter=_of_most_ranks(across))


def _of_most_ranks(links: Iterable[LinkFinding]) -> Link:
    most = max(links, key=lambda link: link.ranks)
    assert most.fit is not None  # the links were chosen by it
    return most.fit.link
