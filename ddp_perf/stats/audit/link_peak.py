"""The peak of a GPU's link, and the bytes that a step's collectives need at least."""

from __future__ import annotations

from collections.abc import Iterable

from ddp_perf.core.launch import Collective

# GB/s in one direction of a GPU, all its NVLinks together: NVIDIA's data sheets of V100, A100, H100
# and H200. For PCIe: 16 lanes of the card's generation (PCI-SIG: 8, 16 and 32 GT/s, 128b/130b).
_NVLINK = {
    "v100-sxm2-16gb": 150.0,
    "v100-sxm2-32gb": 150.0,
    "a100-sxm4-40gb": 300.0,
    "a100-sxm4-80gb": 300.0,
    "h100-80gb-hbm3": 450.0,
    "h200": 450.0,
}
_PCIE = {
    "v100-pcie-16gb": 15.75,
    "v100-pcie-32gb": 15.75,
    "t4": 15.75,
    "a10": 31.5,
    "l4": 31.5,
    "l40s": 31.5,
    "a100-pcie-40gb": 31.5,
    "a100-80gb-pcie": 31.5,
    "h100-pcie": 63.0,
}
# Bytes that a link must carry at least, as a share of the collective's bytes, for two ranks or
# more: each rank receives what it did not have, even if a switch reduces or gathers.
_LEAST_SHARES = {"all_reduce": 1.0, "broadcast": 1.0, "reduce_scatter": 0.5, "all_gather": 0.5}


def link_peak(accelerator: str, link: str | None) -> float | None:
    """Return the peak of a GPU's link in bytes/s in one direction, or None if it is unknown.

    ``link`` is the name that ``nvidia-smi topo -m`` prints.
    """
    if link is None:
        return None
    peaks = _NVLINK if link.startswith("NV") else _PCIE
    gigabytes = peaks.get(accelerator)
    return None if gigabytes is None else gigabytes * 1e9


def least_bytes(collectives: Iterable[Collective]) -> float:
    """Return the least bytes that one rank's link carries in one direction, by any algorithm."""
    return sum(_LEAST_SHARES.get(one.kind, 0.0) * one.bytes for one in collectives)
