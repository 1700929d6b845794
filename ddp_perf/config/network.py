"""A network as text: the links between ranks, for predictions and for emulated cases."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

import msgspec

from ddp_perf.errors import ConfigError
from ddp_perf.stats.link import Link, LinkFit, Topology

# NCCL's own, of a message in a node by PCIe, and between nodes (its Simple protocol).
_LATENCIES_S = {"intra_latency": 5.7e-6, "inter_latency": 14e-6}
_DECIMAL = r"([0-9]{1,6}(?:\.[0-9]{1,6})?)"
_RANGE = rf"{_DECIMAL}(?:-{_DECIMAL})?"
_FORMS = {  # of a value, by its unit
    "": r"([0-9]{1,6})",
    "GB/s": rf"{_RANGE}GB/s",
    "us": rf"{_RANGE}[uµ]s",
    "ns/B": rf"{_RANGE}ns/B",
}
_SCALES = {"": 1.0, "GB/s": 1e9, "us": 1e-6, "ns/B": 1e-9}
_UNITS = {  # of each key
    "gpus_per_node": "",
    "intra": "GB/s",  # between two ranks of a node
    "inter": "GB/s",  # of a node, all adapters together
    "intra_latency": "us",
    "inter_latency": "us",
    "busy": "ns/B",  # CPU time of a rank for a byte that it sends
    "jitter": "us",  # mean delay of each rank's arrival at a collective
}
OF_EMULATION = ("busy", "jitter")
NETWORK_FORM = (
    "intra=…GB/s, or gpus_per_node=N,intra=…GB/s,inter=…GB/s, and intra_latency=…us or"
    " inter_latency=…us where it is not NCCL's {:g} or {:g}"
).format(*(1e6 * seconds for seconds in _LATENCIES_S.values()))


class Network(msgspec.Struct, frozen=True, kw_only=True):
    """The links between ranks. Each value is known within a range, in bytes and seconds."""

    gpus_per_node: int | None
    ranges: dict[str, tuple[float, float]]  # by key

    @property
    def text(self) -> str:
        """The network in the one order and with all latencies: equal ones have one text."""
        values = dict(self.ranges)
        if self.gpus_per_node is not None:
            values["gpus_per_node"] = (self.gpus_per_node, self.gpus_per_node)
        parts = []
        for key, unit in _UNITS.items():
            if key in values:
                ends = dict.fromkeys(_decimal(value / _SCALES[unit]) for value in values[key])
                parts.append(f"{key}={'-'.join(ends)}{unit}")
        return ",".join(parts)

    @property
    def topology(self) -> Topology:
        """The links, each value in the middle of its range."""
        intra = self._link("intra", "intra_latency")
        if self.gpus_per_node is None:
            return Topology(intra=intra, inter=intra)
        inter = self._link("inter", "inter_latency")
        return Topology(gpus_per_node=self.gpus_per_node, intra=intra, inter=inter)

    def topology_of(self, ranks: Sequence[int], world_size: int) -> Topology:
        """Return the links of a group of these global ranks, which fill one node after the other.

        All ranks of a node call at once, so groups that share a node share its link to others.
        """
        topology = self.topology
        if topology.gpus_per_node is None:
            return topology
        by_node = Counter(rank // topology.gpus_per_node for rank in ranks)
        per_node, present = max(by_node.values()), min(topology.gpus_per_node, world_size)
        if len(by_node) == 1:
            return Topology(intra=topology.intra, inter=topology.intra)
        share = topology.inter.bytes_per_s * per_node / present
        inter = Link(latency_s=topology.inter.latency_s, bytes_per_s=share)
        return Topology(gpus_per_node=per_node, intra=topology.intra, inter=inter)

    @property
    def busy_s_per_byte(self) -> float:
        """CPU time of a rank for each byte that it sends."""
        return self._middle("busy")

    @property
    def jitter_s(self) -> float:
        """The mean delay of each rank's arrival at a collective."""
        return self._middle("jitter")

    @property
    def is_uncertain(self) -> bool:
        """True if a value has a range."""
        return any(low < high for low, high in self.ranges.values())

    def drawn(self, number: int) -> Network:
        """Return the network with one value of each range; draws in turn fill the ranges evenly.

        They are points of Halton's sequence (1960), on a scale of ratios: latencies are low as
        often while bandwidths are low as while they are high. No base is 2: a calibration draws
        every second point.
        """
        found = {}
        for key, (low, high) in self.ranges.items():
            place = _halton(number + 1, 3 if key in ("intra", "inter") else 5)
            found[key] = (low * (high / low) ** place,) * 2
        return msgspec.structs.replace(self, ranges=found)

    def _link(self, bandwidth: str, latency: str) -> Link:
        return Link(latency_s=self._middle(latency), bytes_per_s=self._middle(bandwidth))

    def _middle(self, key: str) -> float:
        low, high = self.ranges.get(key, (0.0, 0.0))
        return math.sqrt(low * high)


def network_text(intra: LinkFit, inter: LinkFit | None = None, *, per_node: int = 0) -> str:
    """Return measured links as the text of a network, with the intervals of their fits.

    ``inter`` is the link between nodes with ``per_node`` ranks each.
    """
    parts = _link_texts("intra", intra)
    if inter is not None:
        parts = [f"gpus_per_node={per_node}", *parts, *_link_texts("inter", inter)]
    return ",".join(parts)


def _link_texts(name: str, fit: LinkFit) -> list[str]:
    slow, fast = (f"{value / 1e9:.6f}" for value in fit.bytes_per_s)
    short, long = (f"{value * 1e6:.3f}" for value in fit.latency_s)
    return [f"{name}={slow}-{fast}GB/s", f"{name}_latency={short}-{long}us"]


def _decimal(number: float) -> str:
    return f"{number:.6f}".rstrip("0").rstrip(".")


def _halton(number: int, base: int) -> float:
    """Return the radical inverse of a number above 0: 1/3, 2/3, 1/9, 4/9, … in base 3."""
    found, scale = 0.0, 1.0
    while number:
        scale /= base
        number, digit = divmod(number, base)
        found += scale * digit
    return found


def parse_network(text: str, where: str) -> Network:
    """Return the network of a text. Raises ConfigError, with ``where`` and the keys, if it is none.

    A flat one has ``intra`` alone.
    """

    def bad(what: str) -> ConfigError:
        return ConfigError(f"{where} {text}: {what}; write {NETWORK_FORM}")

    given: dict[str, tuple[float, float]] = {}
    for part in text.split(","):
        key, _, value = map(str.strip, part.partition("="))
        if key not in _UNITS:
            raise bad(f"there is no key {key!r}")
        if key in given:
            raise bad(f"{key} is given twice")
        unit = _UNITS[key]
        match = re.fullmatch(_FORMS[unit], value)
        numbers = [float(number) for number in match.groups() if number] if match else [0.0]
        if min(numbers) == 0:
            raise bad(f"{key}={value} is no {f'number of {unit}' if unit else 'count'} above 0")
        if numbers != sorted(numbers):
            raise bad(f"{key}={value} is a range whose end is below its beginning")
        given[key] = numbers[0] * _SCALES[unit], numbers[-1] * _SCALES[unit]
    nodes = given.pop("gpus_per_node", None)
    has_nodes = nodes is not None or not given.keys().isdisjoint({"inter", "inter_latency"})
    needed = ["gpus_per_node", "intra", "inter"] if has_nodes else ["intra"]
    known = given.keys() | ({"gpus_per_node"} if nodes else set())
    if missing := [key for key in needed if key not in known]:
        raise bad(f"without {' and '.join(missing)}")
    for key, seconds in _LATENCIES_S.items():
        if has_nodes or key == "intra_latency":
            given.setdefault(key, (seconds, seconds))
    return Network(gpus_per_node=None if nodes is None else int(nodes[0]), ranges=given)
