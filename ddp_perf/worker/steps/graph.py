"""A step's forward and backward as one CUDA graph: launched as a whole, without the host.

After torch's notes "CUDA Graphs", "Usage with DistributedDataParallel": DDP is built, warmed up
and captured on one stream, which is not the default one. The optimizer's step stays outside, as
those notes advise for GradScaler; so no optimizer has to be capturable.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch

from ddp_perf.core.case import Case

WARM_UPS = 11  # DDP times its first ten steps by events, which cannot be captured


def graph_stream(case: Case, device: torch.device) -> AbstractContextManager[object]:
    """What a case that is captured must be built and trained under; nothing for any other."""
    if not is_captured(case, device):
        return nullcontext()
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream(device))
    return torch.cuda.stream(stream)


def is_captured(case: Case, device: torch.device) -> bool:
    """Also where a case of the gpu tier is run on a CPU, to count what its step does."""
    return case.cuda_graphs and device.type == "cuda"


def captured(gradients: Callable[[], None]) -> Callable[[], None]:
    """``gradients``, captured on the current stream; calling the result replays it.

    No gradient may be there before, so that the graph makes them, and writes them anew each time.
    """
    graph = torch.cuda.CUDAGraph()
    # thread_local: NCCL's watchdog asks for events of its own meanwhile.
    with torch.cuda.graph(
        graph, stream=torch.cuda.current_stream(), capture_error_mode="thread_local"
    ):
        gradients()
    replay: Callable[[], None] = graph.replay
    return replay
