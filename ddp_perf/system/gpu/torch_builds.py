"""The builds of torch: their pip arguments, and the drivers and machines that can run each."""

from __future__ import annotations

import msgspec

from ddp_perf.core.gpu import GpuMachine


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


_INDEX = "https://download.pytorch.org/whl"
_TURING = (7, 5)  # the oldest for CUDA 13 (its release notes: no Maxwell to Volta)


class TorchBuild(msgspec.Struct, frozen=True, kw_only=True):
    """A released build of torch, with the compute capabilities that it supports."""

    version: str
    cuda: str | None  # None: for CPUs
    oldest: tuple[int, int] = (0, 0)
    newest: tuple[int, int] | None = None  # None: later ones as well, by PTX
    index: str | None = None  # of the wheels, beside PyPI; None: PyPI has it

    @property
    def pip_arguments(self) -> list[str]:
        """The arguments of ``pip install`` for this build."""
        index = [] if self.index is None else ["--extra-index-url", self.index]
        return [f"torch=={self.version}", *index]

    @property
    def download(self) -> str:
        """About how much pip downloads for it, with the packages of CUDA that it requires."""
        return "0.2 GB" if self.cuda is None else "3 GB"

    def runs_on(self, machine: GpuMachine) -> bool:
        """Return whether the driver and every GPU can run it. Unknown properties do not count."""
        capabilities = [gpu.compute_capability for gpu in machine.gpus]
        return cuda_mismatch(self.cuda, machine.cuda_driver) is None and all(
            self.oldest <= capability and (self.newest is None or capability <= self.newest)
            for capability in capabilities
        )


# PyTorch's "CUDA Support Matrix" (RELEASE.md) of the releases 2.13, 2.11 and 2.7; the preferred
# build comes first. 2.11 is the last one for CUDA 12.8, and 2.7 the last one for CUDA 11. All
# machines get one version, so that the counts that one stores are those of the others: 2.13, which
# CI installs. A newer one is used where it is installed (docs/versions.md: what was tested).
DEFAULT_BUILD = TorchBuild(version="2.13.0", cuda="13.0", oldest=_TURING)
_CPU_BUILD = TorchBuild(version="2.13.0+cpu", cuda=None, index=f"{_INDEX}/cpu")
_BUILDS = (
    DEFAULT_BUILD,
    TorchBuild(
        version="2.13.0+cu126", cuda="12.6", oldest=(5, 0), newest=(9, 0), index=f"{_INDEX}/cu126"
    ),
    TorchBuild(version="2.11.0+cu128", cuda="12.8", oldest=_TURING, index=f"{_INDEX}/cu128"),
    TorchBuild(
        version="2.7.1+cu118", cuda="11.8", oldest=(5, 0), newest=(9, 0), index=f"{_INDEX}/cu118"
    ),
)


def torch_build(machine: GpuMachine) -> TorchBuild | None:
    """Return the build to install on the machine, or None if no build runs there.

    A machine without GPUs gets the build for CPUs, one whose GPUs cannot be read that of PyPI.
    """
    if not machine.gpus:
        return DEFAULT_BUILD if machine.problem else _CPU_BUILD
    return next((build for build in _BUILDS if build.runs_on(machine)), None)


def mismatch(torch_cuda: str | None, machine: GpuMachine) -> str | None:
    """Return why the GPUs or the driver cannot run a torch built for that CUDA, or None.

    The result has the form ``what: remedy`` in one line.
    """
    reason = cuda_mismatch(torch_cuda, machine.cuda_driver)
    if reason is None and torch_cuda is not None and int(torch_cuda.partition(".")[0]) >= 13:
        for gpu in machine.gpus:
            if gpu.compute_capability < _TURING:
                major, minor = gpu.compute_capability
                reason = (
                    f"torch is built for CUDA {torch_cuda}, which has no code for compute"
                    f" capability {major}.{minor} ({gpu.name}): install a torch built for CUDA 12"
                )
                break
    build = torch_build(machine)
    if reason is None or build is None:
        return reason
    return f"{reason}; pip install {' '.join(build.pip_arguments)}"
