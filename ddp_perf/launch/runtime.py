"""The versions in this interpreter: ``python -m ddp_perf.launch.runtime`` prints them as JSON."""

from __future__ import annotations

import re
import sys

import msgspec

from ddp_perf.launch.launcher import Runtime


def read_runtime() -> Runtime:
    """Import torch, and return the versions that it runs on."""
    import torch

    from ddp_perf.torch_compat import cudnn_version

    cuda = torch.version.cuda
    has_nccl = cuda is not None and torch.distributed.is_nccl_available()
    blas = re.search(r"BLAS_INFO=(\w+)", torch.__config__.show())
    return Runtime(
        python=".".join(map(str, sys.version_info[:3])),
        torch=str(torch.__version__),
        cuda=cuda,
        cudnn=cudnn_version() if cuda else None,
        nccl=".".join(map(str, torch.cuda.nccl.version())) if has_nccl else None,  # type: ignore[no-untyped-call]
        blas=blas[1] if blas else None,
    )


if __name__ == "__main__":
    print(msgspec.json.encode(read_runtime()).decode())
