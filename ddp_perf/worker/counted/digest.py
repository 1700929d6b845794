"""A checksum of a model, to check that ranks that trained together have equal parameters."""

from __future__ import annotations

import ctypes
import zlib

import torch
from torch import nn
from torch.distributed.tensor import DTensor


def parameter_digest(module: nn.Module) -> int:
    """Return the CRC-32 of all parameters, which is equal on ranks with the same bits.

    Collective if the parameters are sharded: they are gathered one at a time.
    """
    digest = 0
    for parameter in module.parameters():
        data = parameter.detach()
        if isinstance(data, DTensor):
            data = data.full_tensor()
        data = data.cpu().contiguous().flatten().view(torch.uint8)
        if data.numel():  # an empty one has no address, and zlib would begin again at 0
            # Not data.numpy(): torch runs without numpy.
            memory = (ctypes.c_ubyte * data.numel()).from_address(data.data_ptr())
            digest = zlib.crc32(memory, digest)
    return digest
