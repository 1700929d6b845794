"""Small values of counted steps for tests."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from ddp_perf.core.work import (
    PHASES,
    CallCount,
    CollectiveCount,
    Compilation,
    GraphBreak,
    KeptMemory,
    MemoryCount,
    OperationCount,
    Site,
    StepWork,
)
from tests.builders import make_structure

SITE = Site(
    file="my_model.py",
    function="Block.forward",
    text="return self.norm(x)",
    line=42,
    module="layers.*",
)


def make_operation(**changes: Any) -> OperationCount:
    fields = {"phase": "forward", "name": "aten.clone", "dtype": "float32", "site": 0, "count": 1}
    return OperationCount(**{**fields, **changes})


def make_step_work(**changes: Any) -> StepWork:
    """Return the counts of a step that does nothing, with one site."""
    fields: dict[str, Any] = {
        "structure": make_structure(),
        "sites": (SITE,),
    }
    return StepWork(**{**fields, **changes})


def make_site(line: int, text: str = "x = x.clone()", **changes: Any) -> Site:
    fields = {"file": "my_model.py", "function": "Block.forward", "text": text, "line": line}
    return Site(**{**fields, **changes})


def make_work(*operations: tuple[Site, dict[str, Any]], **changes: Any) -> StepWork:
    """Return the counts of a step with these operations, each with its site."""
    sites = tuple(dict.fromkeys(site for site, _ in operations)) or (SITE,)
    counts = [make_operation(site=sites.index(site), **fields) for site, fields in operations]
    return make_step_work(sites=sites, operations=tuple(sorted(counts)), **changes)


def make_collective(**changes: Any) -> CollectiveCount:
    fields: dict[str, Any] = {
        "phase": "backward",
        "kind": "all_reduce",
        "dtype": "float32",
        "bytes": 4096,
        "group": None,
        "asynchronous": True,
        "flops_after": 1000,
        "site": 0,
    }
    return CollectiveCount(**{**fields, **changes})


COUNTS = st.integers(0, 3)
_SITES = st.builds(
    make_site,
    st.integers(1, 3),
    st.sampled_from(["a = b", "c = d"]),
    file=st.sampled_from(["one.py", "other.py"]),
    module=st.sampled_from(["", "layers.*"]),
)
_DTYPES = st.sampled_from(["float32", "bfloat16"])
_PHASES = st.sampled_from(PHASES)


@st.composite
def step_works(draw: st.DrawFn) -> StepWork:
    """Draw a step of few sites, operations and collectives, which often coincide."""
    sites = draw(st.lists(_SITES, min_size=1, max_size=4, unique=True))
    index = st.integers(0, len(sites) - 1)
    operations = draw(
        st.lists(
            st.builds(
                OperationCount,
                phase=_PHASES,
                name=st.sampled_from(["aten.mm", "aten.clone", "aten._local_scalar_dense"]),
                dtype=_DTYPES,
                site=index,
                count=st.integers(1, 3),
                read=COUNTS,
                written=COUNTS,
                flops=COUNTS,
            ),
            max_size=5,
        )
    )
    collectives = draw(
        st.lists(
            st.builds(
                make_collective,
                phase=_PHASES,
                dtype=_DTYPES,
                bytes=st.integers(1, 3),
                group=st.sampled_from([None, 2]),
                asynchronous=st.booleans(),
                flops_after=COUNTS,
                site=index,
            ),
            max_size=4,
        )
    )
    return make_step_work(
        sites=tuple(sites),
        operations=tuple(sorted(operations)),
        collectives=tuple(collectives),
        memory=draw(st.builds(MemoryCount, **dict.fromkeys(MemoryCount.__struct_fields__, COUNTS))),
        kept=tuple(draw(st.lists(st.builds(KeptMemory, site=index, bytes=COUNTS), max_size=2))),
        calls=tuple(draw(st.lists(st.builds(CallCount, site=index, count=COUNTS), max_size=3))),
        callers=tuple(draw(st.lists(st.builds(CallCount, site=index, count=COUNTS), max_size=3))),
        autograd_nodes=draw(
            st.dictionaries(st.sampled_from(["MmBackward0", "Own", "Other"]), st.integers(1, 2))
        ),
        compilation=draw(_compilations(index)),
    )


def _compilations(index: st.SearchStrategy[int]) -> st.SearchStrategy[Compilation | None]:
    breaks = st.lists(
        st.builds(GraphBreak, reason=st.sampled_from(["a print", "a shape"]), site=index),
        max_size=2,
    ).map(tuple)
    compiled = st.builds(Compilation, graphs=COUNTS, breaks=breaks, recompilations=breaks)
    return st.none() | compiled
