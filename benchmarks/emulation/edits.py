"""The edits that are emulated: changes of two small suites, one of DDP and one of FSDP2.

FSDP2 over a CPU waits for each collective, so its prefetch cannot be lost there.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from ddp_perf.core.injection import Injection, parse_injection

_MODEL = {"input_dim": 512, "hidden_dim": 512, "output_dim": 512, "num_layers": 6}
_COMMON = {"tier": "cpu", "workload": "mlp", "model": _MODEL, "batch_sizes": [256], "steps": 12}
_SUITES: dict[str, dict[str, Any]] = {
    "DDP": {**_COMMON, "ddp": {"bucket_cap_mb": 1}},
    "FSDP2": {**_COMMON, "strategy": "fsdp", "fsdp": {"reshard_after_forward": False}},
}


class Edit(NamedTuple):
    """A change of one of the suites, or what is injected into it."""

    name: str
    fields: Mapping[str, Any] = MappingProxyType({})
    injected: str | None = None
    base: str = "DDP"

    @property
    def suite(self) -> dict[str, Any]:
        return {**_SUITES[self.base], **self.fields}


BASES = {name: Edit(name, base=name) for name in _SUITES}
EDITS = (
    Edit("one bucket", {"ddp": {"bucket_cap_mb": 25}}),
    Edit("find_unused_parameters", {"ddp": {"bucket_cap_mb": 1, "find_unused_parameters": True}}),
    Edit("static_graph", {"ddp": {"bucket_cap_mb": 1, "static_graph": True}}),
    Edit("a loss read in each step", injected="sync-each-step"),
    Edit("no overlap", injected="no-overlap"),
    Edit("two micro-steps, one of them no_sync", {"gradient_accumulation": 2}),
    Edit("bf16 hook", {"comm_hooks": [{"kind": "bf16"}]}),
    Edit("larger layers", {"model": {**_MODEL, "hidden_dim": 768}}),
    Edit("reshard_after_forward", {"fsdp": {"reshard_after_forward": True}}, base="FSDP2"),
)


def injections_of(edit: Edit) -> tuple[Injection, ...]:
    return () if edit.injected is None else (parse_injection(edit.injected),)
