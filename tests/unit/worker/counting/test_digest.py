"""The checksum of a model, which must be equal on all ranks."""

from __future__ import annotations

import zlib

import pytest
import torch
from torch import nn

from ddp_perf.worker.counting.structure import parameter_digest


def model(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


def test_equal_parameters_have_equal_digests():
    assert parameter_digest(model()) == parameter_digest(model())


def nudge(module):
    module[2].bias[1].nextafter_(torch.tensor(torch.inf))


def swap_rows(module):
    module[0].weight.copy_(module[0].weight.flip(0))


@pytest.mark.parametrize("change", [nudge, swap_rows], ids=lambda change: change.__name__)
def test_the_smallest_change_changes_the_digest(change):
    changed = model()
    with torch.no_grad():
        change(changed)

    assert parameter_digest(changed) != parameter_digest(model())


def test_the_digest_does_not_depend_on_the_memory_layout():
    plain, transposed = model(), model()
    weight = transposed[0].weight
    transposed[0].weight = nn.Parameter(weight.detach().t().contiguous().t())

    assert not transposed[0].weight.is_contiguous()
    assert parameter_digest(transposed) == parameter_digest(plain)


def test_it_is_the_checksum_of_all_bytes_also_beside_an_empty_parameter():
    changed = model()
    changed.register_parameter("empty", nn.Parameter(torch.empty(0)))
    data = b"".join(parameter.detach().numpy().tobytes() for parameter in changed.parameters())

    assert parameter_digest(changed) == zlib.crc32(data)
