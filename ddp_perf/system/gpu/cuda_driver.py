"""The compatibility of the NVIDIA driver with the CUDA that torch was built for."""

from __future__ import annotations


def cuda_mismatch(torch_cuda: str | None, driver_cuda: str | None) -> str | None:
    """Return the mismatch and the remedy in one line, or None if there is no known mismatch.

    ``torch_cuda`` is ``torch.version.cuda``; ``driver_cuda`` the newest CUDA that the driver runs,
    as NVML reports it (NVML asks the libcuda that it finds, so a forward-compatibility package
    counts). Both are ``major.minor``; None means unknown, which is never a mismatch.

    A driver runs every older major version of CUDA, and every minor version of its own
    (NVIDIA, "CUDA Compatibility", minor version compatibility: from CUDA 11 on).
    """
    if torch_cuda is None or driver_cuda is None:
        return None
    needed, newest = _major(torch_cuda), _major(driver_cuda)
    if needed <= newest:
        return None
    return (
        f"torch is built for CUDA {torch_cuda}, and NVML reports a driver for CUDA {driver_cuda}:"
        f" install a torch built for CUDA {newest} (pytorch.org/get-started), or a driver for"
        f" CUDA {needed}"
    )


def _major(version: str) -> int:
    return int(version.partition(".")[0])
