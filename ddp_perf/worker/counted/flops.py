"""The floating-point operations of a step, counted by torch's own formulas."""

from __future__ import annotations

from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry


class FlopCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A counter of the operations in matrix products, convolutions and attentions.

    It counts what this thread and its backward dispatch. A multiplication and an addition are two
    operations. Elementwise operations are left out, as in
    ``torch.utils.flop_counter.FlopCounterMode``. That class also tracks modules, which is not
    needed here.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.flops = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        self.flops += operation_flops(func, args, kwargs or {}, out)
        return out


def operation_flops(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> int:
    """Return the floating-point operations of one call that returned ``out``, or 0."""
    formula = flop_registry.get(getattr(func, "_overloadpacket", None))
    return 0 if formula is None else int(formula(*args, **kwargs, out_val=out))
