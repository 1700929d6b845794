"""A checksum of a model: whether ranks that trained together hold the same."""

from __future__ import annotations

import zlib

import torch
from torch import nn
from torch.distributed.tensor import DTensor


def parameter_digest(module: nn.Module) -> int:
    """A checksum of all parameters, bit by bit: equal on ranks that hold the same model.

    Collective where they are sharded: each is put together, one at a time.
    """
    digest = 0
    for parameter in module.parameters():
        data = parameter.detach()
        if isinstance(data, DTensor):
            data = data.full_tensor()
        data = data.cpu().contiguous().flatten().view(torch.uint8)
        digest = zlib.crc32(data.numpy().data, digest)
    return digest
