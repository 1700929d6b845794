"""Calls of NVML by name: pynvml has the functions of its own version, the library the driver's.

Either may lack some. No other module but those of this package imports pynvml.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import pynvml


@contextlib.contextmanager
def loaded_nvml() -> Iterator[None]:
    """Keep NVML initialised in the ``with`` block. Raises NVMLError if there is none."""
    call("nvmlInit")
    try:
        yield
    finally:
        optional("nvmlShutdown")


def call(name: str, *arguments: Any) -> Any:
    """Call pynvml's function of that name.

    Raises NVMLError, also if pynvml or the driver's library has no such function.
    """
    function = getattr(pynvml, name, None)
    if function is None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
    try:
        return function(*arguments)
    except pynvml.NVMLLibraryMismatchError:  # this class is no NVMLError
        raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND) from None


def optional(name: str, *arguments: Any) -> Any:
    """Call a function, and return None if the card or the driver refuses or lacks it."""
    try:
        return call(name, *arguments)
    except pynvml.NVMLError:
        return None


def first_known(names: Sequence[str], *arguments: Any) -> Any:
    """Return the first result that is not None, of functions by their newer and older names."""
    answers = (optional(name, *arguments) for name in names)
    return next((answer for answer in answers if answer is not None), None)


def is_slice(handle: Any) -> bool:
    """Return whether the handle is that of a MIG slice."""
    return bool(optional("nvmlDeviceIsMigDeviceHandle", handle))


def card_of(handle: Any) -> Any:
    """Return the GPU of a MIG slice, or the handle itself if it is a GPU's."""
    if not is_slice(handle):
        return handle
    card = optional("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", handle)
    return handle if card is None else card


def has_mig(card: Any) -> bool:
    """Return whether MIG is on, so that the card has slices."""
    mig = optional("nvmlDeviceGetMigMode", card)
    return bool(mig and mig[0])
