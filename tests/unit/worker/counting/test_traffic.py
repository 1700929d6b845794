"""The bytes that an operation reads and writes, against counts by hand."""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ddp_perf.worker.counting.step_recorder import Traffic, operation_traffic

FLOAT = 4


class NotedTraffic(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.noted = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        name = func._schema.name.replace("::", ".")
        self.noted[name] = operation_traffic(name, func, args, kwargs or {}, out)
        return out


@pytest.mark.parametrize(
    ("call", "name", "read", "written"),
    [
        (lambda x: x + x, "add", 2 * 12, 12),
        (lambda x: x.t(), "t", 0, 0),
        (lambda x: x.reshape(12, 1), "view", 0, 0),
        (lambda x: x.clone(), "clone", 12, 12),
        (lambda x: x.double(), "_to_copy", 12, 2 * 12),
        (lambda x: x[:1].expand(100, 4).clone(), "clone", 4, 100 * 4),
        (lambda x: x.add_(1), "add_", 12, 12),
        (lambda x: x.zero_(), "zero_", 0, 12),
        (lambda x: x.copy_(torch.ones(4)), "copy_", 4, 12),
        (lambda x: torch.exp(x, out=torch.empty(3, 4)), "exp", 12, 12),
        (lambda x: torch.zeros_like(x), "zeros_like", 0, 12),
        (lambda x: torch.empty_like(x), "empty_like", 0, 0),
        (lambda x: x.sum().item(), "_local_scalar_dense", 1, 0),
        (lambda x: x.index_select(0, torch.tensor([2])), "index_select", 4 + 2, 4),
        (lambda x: torch._foreach_mul_([x, x[0]], 2.0), "_foreach_mul_", 16, 16),
    ],
)
def test_the_bytes_of_an_operation_on_12_numbers(call, name, read, written):
    """``read`` and ``written`` are in numbers of float32; an index is two of them."""
    with NotedTraffic() as mode:
        call(torch.ones(3, 4))

    assert mode.noted[f"aten.{name}"] == Traffic(read * FLOAT, written * FLOAT)
