"""The floating-point operations of a step, counted by torch's own formulas."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.flop_counter import flop_registry

from ddp_perf.torch_compat import allowed_tf32
from ddp_perf.worker.counted.noting import NotingMode

_FORMATS = {
    torch.float32: "fp32",
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
    torch.float8_e4m3fn: "fp8",
    torch.float8_e5m2: "fp8",
}


class FlopCounter(NotingMode):  # type: ignore[no-untyped-call]
    """A counter of the operations in matrix products, convolutions and attentions.

    It counts what this thread and its backward dispatch. A multiplication and an addition are two
    operations. Elementwise operations are left out, as in
    ``torch.utils.flop_counter.FlopCounterMode``. That class also tracks modules, which is not
    needed here.
    """

    def __init__(self) -> None:
        super().__init__()
        self._by_format: dict[str, int] = {}

    @property
    def by_format(self) -> dict[str, int]:
        """The operations so far, by their format. It raises what failed to count one."""
        self.check()
        return self._by_format

    @property
    def flops(self) -> int:
        """The operations so far, in all formats."""
        return sum(self.by_format.values())

    def note(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        if flops := operation_flops(func, args, kwargs, out):
            used = _format(func, args)
            self._by_format[used] = self._by_format.get(used, 0) + flops


def operation_flops(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> int:
    """Return the floating-point operations of one call that returned ``out``, or 0."""
    formula = flop_registry.get(getattr(func, "_overloadpacket", None))
    return 0 if formula is None else int(formula(*args, **kwargs, out_val=out))


def _format(func: Any, args: tuple[Any, ...]) -> str:
    """Return the format that a product or a convolution is computed in, by its first operand."""
    operand = next(one for one in args if isinstance(one, torch.Tensor))
    if operand.dtype == torch.float32 and operand.is_cuda:
        products, convolutions = allowed_tf32()
        is_convolution = "conv" in func._schema.name
        return "tf32" if (convolutions if is_convolution else products != "highest") else "fp32"
    return _FORMATS.get(operand.dtype, str(operand.dtype).removeprefix("torch."))
