"""The work of a step: exact counts of what one rank does in it, by phase and by source line.

Counts need no quiet machine: they are the same on every machine that has the same torch.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from ddp_perf.core.case import Case
from ddp_perf.core.launch import Structure

Phase = Literal["data", "forward", "backward", "optimizer"]
PHASES: tuple[Phase, ...] = ("data", "forward", "backward", "optimizer")

# Operations whose result the host needs, or whose shape depends on values: on a GPU the host waits.
HOST_READS = frozenset(
    {
        "aten._local_scalar_dense",  # .item(), float(), bool(), print
        "aten._unique2",
        "aten.equal",
        "aten.is_nonzero",
        "aten.masked_select",
        "aten.nonzero",
        "aten.unique_consecutive",
        "aten.unique_dim",
        "copy_between_devices",
        "copy_to_host",  # .cpu(), .tolist(), .numpy()
        "synchronize",
    }
)


class Site(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """A place in the source, and the module that was active there.

    ``file`` is relative to the directory from which it is imported. It is the innermost line of
    the user's code; where a module or an optimizer of a library works by itself, the line that made
    it. The line's ``text`` identifies the place in the next version of the file; ``line`` does not.
    """

    file: str
    function: str  # qualified: "Block.forward"
    text: str  # without the white space around it
    line: int
    module: str = ""  # path with "*" for each number: "layers.*.norm"; empty: none was active


class OperationCount(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """An operation of ATen, as often as one site dispatches it in a phase of the step."""

    phase: Phase
    name: str  # "aten.clone": without its overload; or "copy_between_devices"
    dtype: str  # of its first output, else of its first input: "bfloat16"; "none": no tensor
    site: int  # index of StepWork.sites
    count: int
    read: int = 0  # bytes; none for a view
    written: int = 0
    flops: int = 0  # by torch's formulas: matrix products, convolutions, attention


class CollectiveCount(msgspec.Struct, frozen=True, kw_only=True):
    """A collective that the step issues, in the order of issue."""

    phase: Phase
    kind: str  # as Collective.kind
    dtype: str
    bytes: int
    group: int | None  # ranks of its group; None: all ranks
    asynchronous: bool
    flops_after: int  # of the same phase: what it can overlap with
    site: int


class MemoryCount(msgspec.Struct, frozen=True, kw_only=True):
    """The memory of a step by counting storages. Unlike the resident set it is exact."""

    allocations: int
    allocated: int  # bytes
    saved_tensors: int  # for the backward, at the end of the forward
    saved: int  # bytes
    peak: int  # bytes above those before the step
    kept: int  # bytes more after the step than before it: 0, unless something leaks
    held: int = 0  # bytes that the step before left there: gradients, and what the code keeps


NO_MEMORY = MemoryCount(**dict.fromkeys(MemoryCount.__struct_fields__, 0))


class KeptMemory(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """Memory that a site allocated in a step and that is still there after it."""

    site: int
    bytes: int


class CallCount(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """Calls of the user's Python functions in a step: of one that ``site`` defines, or by it."""

    site: int
    count: int


class GraphBreak(msgspec.Struct, frozen=True, kw_only=True):
    """A graph break, or a recompilation: its reason as torch gives it, in one line."""

    reason: str
    site: int


class Compilation(msgspec.Struct, frozen=True, kw_only=True):
    """The result of torch.compile over the first steps: graphs, and what it had to do again."""

    graphs: int
    breaks: tuple[GraphBreak, ...] = ()
    recompilations: tuple[GraphBreak, ...] = ()


class StepWork(msgspec.Struct, frozen=True, kw_only=True):
    """The counts of one settled step of one rank, or its structure alone, as a session has it."""

    structure: Structure
    sites: tuple[Site, ...] = ()
    operations: tuple[OperationCount, ...] = ()  # sorted
    collectives: tuple[CollectiveCount, ...] = ()
    memory: MemoryCount = NO_MEMORY
    kept: tuple[KeptMemory, ...] = ()
    held: tuple[KeptMemory, ...] = ()
    calls: tuple[CallCount, ...] = ()  # of each function, by its definition; sorted
    callers: tuple[CallCount, ...] = ()  # by each line, directly or through a library; sorted
    autograd_nodes: dict[str, int] = {}  # by name: "AddmmBackward0"
    compilation: Compilation | None = None  # None: nothing is compiled
    reported: dict[str, int] = {}  # not gated, since not exact: "python_calls", "instructions"
    computed: bool = False  # True: values were computed, since the step needs them


class CountRequest(msgspec.Struct, frozen=True, kw_only=True, tag="count"):
    """A request to count a step of one rank, which runs alone on a CPU, in true sizes.

    Its process group has as many ranks as the case, and does nothing. Operations allocate their
    results and compute nothing, unless ``compute`` is set: for a step that depends on its values.
    """

    case: Case
    rank: int = 0
    compute: bool = False
    import_paths: tuple[str, ...] = ()  # directories from which a user's workload is imported


class RankCounted(msgspec.Struct, frozen=True, kw_only=True, tag="counted"):
    """The counts of a rank that measured nothing."""

    work: StepWork
