"""The forward and backward of a step as one CUDA graph, which the host launches as a whole.

This follows torch's notes "CUDA Graphs", section "Usage with DistributedDataParallel": DDP is
built, warmed up and captured on one stream that is not the default stream. The optimizer's step is
not captured, as those notes advise for GradScaler, so any optimizer can be used.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch

from ddp_perf.core.case import Case

WARM_UPS = 11  # steps: DDP times its first ten by events, which cannot be captured


def graph_stream(case: Case, device: torch.device) -> AbstractContextManager[object]:
    """Return the context for building and training a captured case; an empty one for any other."""
    if not is_captured(case, device):
        return nullcontext()
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream(device))
    return torch.cuda.stream(stream)


def is_captured(case: Case, device: torch.device) -> bool:
    """Return whether the step is captured. A gpu case that is counted on a CPU is not."""
    return case.cuda_graphs and device.type == "cuda"


def capture_graph(gradients: Callable[[], None]) -> Callable[[], None]:
    """Capture ``gradients`` on the current stream, and return a function that replays it.

    No gradient may exist before the capture: the graph must allocate the gradients, and then
    overwrites them in each replay.
    """
    graph = torch.cuda.CUDAGraph()
    # thread_local, since NCCL's watchdog queries its own events at the same time.
    with torch.cuda.graph(
        graph, stream=torch.cuda.current_stream(), capture_error_mode="thread_local"
    ):
        gradients()
    replay: Callable[[], None] = graph.replay
    return replay
