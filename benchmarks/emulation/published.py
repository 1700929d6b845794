"""Whether an emulated rank could have the published steps of several GPUs.

    python benchmarks/emulation/published.py

It computes at the pace of one GPU, so its step lies between that GPU's (all communication is
hidden) and that with all communication behind it. A published step above this band lost its time
elsewhere. Batches per GPU are equal (weak scaling); gradients are taken as FP32, the most there is.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from ddp_perf.baselines.store import BaselineStore
from ddp_perf.config.network import parse_network
from ddp_perf.core.published import PublishedTable
from ddp_perf.worker.emulation import LinkModel

BASELINES = Path(__file__).parents[2] / "baselines"
# A100: bus bandwidth of 8 at 128 MiB and 8 GiB, V100-PCIE: of 2 (SuperBench, nccl-bw). V100-SXM2:
# half of its links' and all (data sheet). T4: PCIe 3 x16. Latencies: NCCL's own.
NETWORKS = {
    "a100-sxm4-80gb": "intra=202-235GB/s,intra_latency=3.4us",
    "v100-sxm2-16gb": "intra=75-150GB/s,intra_latency=3.4us",
    "v100-sxm2-32gb": "intra=75-150GB/s,intra_latency=3.4us",
    "v100-pcie-16gb": "intra=10.1-11.7GB/s",
    "t4": "intra=6-12GB/s",
}
PARAMETERS = {  # of a published table, by the beginning of its name
    "resnet50": 25_557_032,
    "bert-large": 336_226_108,
    "distilbert": 66_956_548,
    "mlp-scaling": 2 * (4096 + 1) * 4096 + (4096 + 1) * 2048,
}
# Of a table without batches: sequences of a micro-step, and micro-steps of a step.
BATCHES = {"a100-sxm4-80gb": (256, 32), "v100-sxm2-32gb": (64, 64)}


def main() -> None:
    for accelerator, network in NETWORKS.items():
        for table in BaselineStore(BASELINES).load(accelerator).published:
            for line in lines(accelerator, network, table):
                print(line)


def lines(accelerator: str, network: str, table: PublishedTable) -> Iterator[str]:
    """Yield the published step of each row of several GPUs, and its band."""
    name = next((name for name in PARAMETERS if table.name.startswith(name)), None)
    rows = [row for row in table.rows if row.throughput is not None]
    alone = {row.batch_size: row.throughput for row in rows if row.world_size == 1}
    for row in rows:
        pace = alone.get(row.batch_size)
        if name is None or row.world_size == 1 or pace is None or row.throughput is None:
            continue
        batch, steps = (row.batch_size, 1) if row.batch_size else BATCHES[accelerator]
        samples = batch * steps
        alone_s, given_s = samples / pace, samples * row.world_size / row.throughput
        exchange_s = max(
            LinkModel(parse_network(network, accelerator).drawn(number))
            .call("all_reduce", 4 * PARAMETERS[name], range(row.world_size))
            .seconds
            for number in range(30)
        )
        inside = "inside" if given_s <= alone_s + exchange_s else "slower than any emulated one"
        yield (
            f"{accelerator:15} {table.name:20} b{batch:<5} {row.world_size} GPUs:"
            f" {1e3 * given_s:8.1f} ms; band {1e3 * alone_s:8.1f} to"
            f" {1e3 * (alone_s + exchange_s):8.1f} ms: {inside}; lost {given_s / alone_s - 1:.1%},"
            f" of which communication at most {exchange_s / alone_s:.1%}"
        )


if __name__ == "__main__":
    main()
