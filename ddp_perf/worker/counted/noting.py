"""A dispatch mode that notes operations, and lets the step go on whatever happens to its notes."""

from __future__ import annotations

from typing import Any

from ddp_perf.torch_compat import TorchDispatchMode


class NotingMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A recorder of the operations that this thread and its backward dispatch.

    An error of ``note`` is raised by ``check``, after the step: within it, the error would end the
    step on this rank alone, while other ranks wait for it.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._error: Exception | None = None

    def note(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        """Note one operation that returned ``out``."""
        raise NotImplementedError

    def check(self) -> None:
        """Raise the first error of the notes, if there was one."""
        if self._error is not None:
            raise self._error

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        if self._error is None:
            try:
                self.note(func, args, kwargs or {}, out)
            except Exception as error:  # noqa: BLE001 – ``check`` raises it
                self._error = error
        return out
