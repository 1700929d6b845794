"""A simulation of one GPU for torch. Python imports it if its directory is on PYTHONPATH.

Torch is built for CUDA, NVML reports one device, and an initialisation of CUDA raises an error
that names the process. INITIALISE_CUDA=1 marks CUDA as initialised, as an import might.
"""

from __future__ import annotations

import importlib
import os
import sys
import types

import torch


def _initialise(*arguments):
    raise RuntimeError(f"CUDA initialised in process {os.getpid()}")


torch.version.cuda = "12.8"
torch._C._cuda_getDeviceCount = _initialise  # the driver's own count, not NVML's
torch._C._cuda_getCurrentRawStream = _initialise
torch._C._accelerator_getAccelerator = lambda: torch.device("cuda")
torch._C._accelerator_synchronizeDevice = _initialise
torch.cuda._raw_device_count_nvml = lambda: 1
torch.cuda._lazy_init = _initialise
torch.cuda._initialized = os.environ.get("INITIALISE_CUDA") == "1"
torch._C._cudnn = types.SimpleNamespace(  # type: ignore[assignment]
    is_cuda=True,
    getVersionInt=lambda: 91900,
    getRuntimeVersion=lambda: (9, 19, 0),
    getCompileVersion=lambda: (9, 19, 0),
)
del sys.modules["torch.backends.cudnn"]  # it looks for cuDNN when it is imported
torch.backends.cudnn = importlib.import_module("torch.backends.cudnn")
