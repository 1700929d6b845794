"""The floating-point operations of a step, counted by torch's own formulas."""

from __future__ import annotations

from typing import Any

from torch.utils.flop_counter import flop_registry

from ddp_perf.worker.counted.noting import NotingMode


class FlopCounter(NotingMode):  # type: ignore[no-untyped-call]
    """A counter of the operations in matrix products, convolutions and attentions.

    It counts what this thread and its backward dispatch. A multiplication and an addition are two
    operations. Elementwise operations are left out, as in
    ``torch.utils.flop_counter.FlopCounterMode``. That class also tracks modules, which is not
    needed here.
    """

    def __init__(self) -> None:
        super().__init__()
        self._flops = 0

    @property
    def flops(self) -> int:
        """The operations so far. It raises what failed to count one."""
        self.check()
        return self._flops

    def note(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        self._flops += operation_flops(func, args, kwargs, out)


def operation_flops(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> int:
    """Return the floating-point operations of one call that returned ``out``, or 0."""
    formula = flop_registry.get(getattr(func, "_overloadpacket", None))
    return 0 if formula is None else int(formula(*args, **kwargs, out_val=out))
