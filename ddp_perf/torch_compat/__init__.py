"""The differences between torch versions (2.6 to 2.15), handled here only.

Private names of torch are used in this package alone: here, what differs between versions, and in
``internals`` what is looked up when it is used.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from traceback import FrameSummary
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import BaseTorchDispatchMode as BaseTorchDispatchMode
from torch.utils._python_dispatch import TorchDispatchMode as TorchDispatchMode

from ddp_perf.core.launch import Numerics

_DDP_PARAMETERS = inspect.signature(DistributedDataParallel.__init__).parameters
# 2.13 deprecates the older names.
_ALL_GATHER: Any = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_REDUCE_SCATTER: Any = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


def broadcast_buffers_argument(broadcast: bool) -> dict[str, Any]:
    """Return DDP's argument for ``broadcast_buffers``, named as this version expects it.

    2.13 deprecates that name in favour of ``forward_sync_buffers``. The default (True) needs no
    argument.
    """
    if broadcast:
        return {}
    if "forward_sync_buffers" in _DDP_PARAMETERS:
        return {"forward_sync_buffers": False}
    return {"broadcast_buffers": False}


def flight_recorder_variable() -> str:
    """Return the environment variable for the number of collectives that torch records.

    Versions before 2.8 read the older name only, and record nothing by default. Later versions
    warn of the older name.
    """
    newer = torch.__version__ >= "2.8"  # a TorchVersion, which compares as a version
    return "TORCH_FR_BUFFER_SIZE" if newer else "TORCH_NCCL_TRACE_BUFFER_SIZE"


_get_backend = dist.get_backend  # a lone rank's script sees another, which names what it asked for


def flight_recorder_entries() -> list[dict[str, Any]]:
    """Return the collectives that this process has issued in any thread, oldest first.

    The list is empty if this version records none for the backend, or if the variable of
    ``flight_recorder_variable`` is 0. NCCL has its own recorder.
    """
    name = "_dump_nccl_trace_json" if "nccl" in _get_backend() else "_dump_fr_trace_json"
    dump = getattr(torch._C._distributed_c10d, name, None)
    if dump is None:
        return []
    entries: list[dict[str, Any]] = json.loads(dump()).get("entries", [])
    return entries


def fake_backend(rank: int, size: int) -> Any:
    """Return torch's backend that does nothing, for one of ``size`` ranks."""
    group: Any = torch._C._distributed_c10d.FakeProcessGroup
    make = getattr(group, "_create_internal", group)  # 2.9 took the constructor away
    return make(rank, size)


def infers_on_fake_tensors() -> bool:
    """Return whether torch now infers a result on fake tensors, as DTensor does for its shards.

    The mode for that comes after any other dispatch mode, which has to pass the operation on.
    """
    key: Any = torch._C._TorchDispatchModeKey.FAKE
    return torch._C._get_dispatch_mode(key) is not None


def shards_on_cpu() -> bool:
    """Return whether FSDP2 trains right on a CPU.

    That of 2.6 needs a GPU. Over gloo, 2.7 and 2.8 sum gradients where they should average them.
    """
    return torch.__version__ >= "2.9"  # a TorchVersion, which compares as a version


def has_smaller_groups() -> bool:
    """Return whether this process is in a process group of some of the ranks only."""
    groups: Any = dist.distributed_c10d._world.pg_group_ranks
    return any(len(ranks) < dist.get_world_size() for ranks in groups.values())


def work_of(future: Any) -> dist.Work:
    """Return the work of a collective with this future."""
    module: Any = torch._C._distributed_c10d  # its stubs lack the function
    work: dist.Work = module._create_work_from_future(future)
    return work


def wait_on_gpu(cycles: int) -> None:
    """Launch a kernel on the current stream that only waits, for about so many of its cycles."""
    sleep: Any = torch.cuda._sleep
    sleep(cycles)


@contextlib.contextmanager
def foreach_on_cpu() -> Iterator[None]:
    """Let optimizers choose on a CPU as on a GPU: they work on lists of tensors by default."""
    name = "_get_foreach_kernels_supported_devices"
    module = sys.modules[torch.optim.Optimizer.__module__]  # torch.optim does not name it
    before: Any = getattr(module, name)
    setattr(module, name, lambda: [*before(), "cpu"])
    try:
        yield
    finally:
        setattr(module, name, before)


@contextlib.contextmanager
def paused_saved_hooks() -> Iterator[None]:
    """Let code that refuses hooks of saved tensors, as ``torch.func.grad``, run without them.

    Inside the ``with`` block torch leaves the hooks that are there alone, and saves without them.
    Before 2.8 torch cannot do so, and its own error says that it refuses hooks.
    """
    if torch.__version__ < "2.8":
        yield
        return
    graph: Any = torch.autograd.graph
    hooks: Any = torch._C._autograd
    before = graph.disable_saved_tensors_hooks

    @contextlib.contextmanager
    def paused(message: str, *_: object) -> Iterator[None]:
        outer = hooks._saved_tensors_hooks_get_disabled_error_message()
        hooks._saved_tensors_hooks_disable(message, False)
        try:
            yield
        finally:
            if outer is None:
                hooks._saved_tensors_hooks_enable()
            else:
                hooks._saved_tensors_hooks_disable(outer, False)

    graph.disable_saved_tensors_hooks = paused
    try:
        yield
    finally:
        graph.disable_saved_tensors_hooks = before


def cudnn_version() -> str | None:
    """Return the version of cuDNN, or None if torch was built without it.

    No GPU is used. ``torch.backends.cudnn.version()`` checks the GPUs in 2.13, which initialises
    CUDA in this process.
    """
    cudnn: Any = getattr(torch._C, "_cudnn", None)
    return None if cudnn is None else str(cudnn.getVersionInt())


def set_tf32(allowed: bool) -> None:
    """Set whether fp32 uses TF32 in matrix products, convolutions and recurrent layers.

    This uses the older switches on purpose. From 2.9 on each of them also sets the newer, finer
    ones. After the newer ones were set, torch rejects the older ones: ``cudnn.allow_tf32`` can
    then not be read, nor ``cudnn.flags()`` be entered, and Inductor and transformers do that.
    """
    torch.set_float32_matmul_precision("high" if allowed else "highest")
    torch.backends.cudnn.allow_tf32 = allowed


@contextlib.contextmanager
def ieee_products(device: torch.device) -> Iterator[None]:
    """Compute fp32 matrix products on ``device`` in IEEE fp32 during the ``with`` block.

    From 2.9 on this uses the newer switch of the device's backend, which can always be read. The
    older one raises if the workload has set the newer one.
    """
    backend: Any = torch.backends.cuda if device.type == "cuda" else torch.backends.mkldnn
    products: Any = getattr(backend, "matmul", None)
    if hasattr(products, "fp32_precision"):
        before = products.fp32_precision
        products.fp32_precision = "ieee"
        yield
        products.fp32_precision = before
    else:
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("highest")
        yield
        torch.set_float32_matmul_precision(before)


def allowed_tf32() -> tuple[str, bool]:
    """Return the precision of fp32 matrix products on a GPU, and if its convolutions use TF32.

    They are read back correctly whichever switches a workload used.
    """
    convolution: Any = getattr(torch.backends.cudnn, "conv", None)
    if hasattr(convolution, "fp32_precision"):
        # On a GPU "medium" and "high" both mean TF32.
        products = "high" if torch.backends.cuda.matmul.fp32_precision == "tf32" else "highest"
        return products, convolution.fp32_precision == "tf32"
    return torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32


def numerics() -> Numerics:
    """Return the number formats and the allocator of this process's GPU."""
    products, convolution_tf32 = allowed_tf32()
    return Numerics(
        matmul_precision=products,
        convolution_tf32=convolution_tf32,
        cudnn_benchmark=torch.backends.cudnn.benchmark,
        allocator=torch.cuda.get_allocator_backend(),
    )


def all_gather(output: torch.Tensor, own: torch.Tensor, group: Any) -> None:
    """Gather ``own`` of every rank of ``group``, in the order of ranks, into ``output``."""
    _ALL_GATHER(output, own, group=group)


def reduce_scatter(own: torch.Tensor, values: torch.Tensor, group: Any) -> None:
    """Sum ``values`` over ``group`` and write this rank's share of the sum to ``own``."""
    _REDUCE_SCATTER(own, values, group=group)


def device_uuid(index: int) -> str:
    """Return the UUID of ``cuda:index`` as CUDA writes it, without the prefix of NVML."""
    return str(torch.cuda.get_device_properties(index).uuid)


class CapturedMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A dispatch mode under which torch.compile captures graphs; under others it skips frames.

    Operations of a graph that runs as it was captured are dispatched to the mode.
    """

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Return True. Older versions do not ask for it: see ``captures_under_modes``."""
        return True


def captures_under_modes() -> bool:
    """Return whether torch.compile captures graphs under a CapturedMode."""
    return hasattr(TorchDispatchMode, "ignore_compile_internals")


@contextlib.contextmanager
def uncompiled() -> Iterator[None]:
    """Run what torch.compile has compiled as it is written, inside the ``with`` block only.

    Under a dispatch mode dynamo gives a frame up, and 2.13 for good: later calls outside of the
    mode would run uncompiled, too.
    """
    if "torch._dynamo" not in sys.modules:  # then nothing is compiled, and its import takes long
        yield
        return
    with torch.compiler.set_stance("force_eager"):
        yield


def compiles_by_itself() -> bool:
    """Return whether code of this process was decorated with torch.compile, and has run.

    It is True if a version of torch does not show it.
    """
    if "torch._dynamo" not in sys.modules:
        return False
    codes = getattr(torch._dynamo.convert_frame, "input_codes", None)
    return bool(getattr(codes, "seen", True))


def compile_id() -> str:
    """Return the id of the compilation that is under way, as dynamo's records have it: "0/1"."""
    return str(torch._guards.CompileContext.current_compile_id())


def recompile_reason(attempt: Any) -> str | None:
    """Return why a function was compiled again, or None: 2.6 does not record it."""
    reason: str | None = getattr(attempt, "recompile_reason", None)
    return reason


def frames_not_captured(
    attempts: Sequence[Any], unimplemented: Mapping[str, int]
) -> Iterator[tuple[str, list[FrameSummary]]]:
    """Yield the reason and the place of each frame that dynamo gave up, as for a break in a loop.

    ``attempts`` are dynamo's records of compilations; ``unimplemented`` is its counter. An older
    version records reasons in the counter only: the place is then the first line of the first
    function that was not captured.
    """
    given_up = [one for one in attempts if one.graph_op_count is None]
    for one in given_up:
        if one.fail_reason is not None:
            file = one.fail_user_frame_filename or one.co_filename
            line = one.fail_user_frame_lineno or one.co_firstlineno
            yield one.fail_reason, [_frame(file, line, one.co_name)]
    if given_up and not captures_under_modes():  # the same version began to do both
        place = _frame(given_up[0].co_filename, given_up[0].co_firstlineno, given_up[0].co_name)
        for reason, count in unimplemented.items():
            yield from [(reason, [place])] * count


def _frame(file: str | None, line: int | None, function: str | None) -> FrameSummary:
    return FrameSummary(str(file), line, str(function), lookup_line=False)
