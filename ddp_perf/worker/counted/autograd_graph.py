"""The nodes of an autograd graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch

from ddp_perf.torch_compat.internals import number_of

ACCUMULATION = "torch::autograd::AccumulateGrad"  # the node of a parameter


def count_nodes(loss: torch.Tensor, note_use: Callable[[torch.Tensor, int], None]) -> Counter[str]:
    """Return the number of nodes behind ``loss`` by name, each node once.

    ``note_use`` is called with each parameter and the number of a node that uses it.
    """
    names: Counter[str] = Counter()
    first: Any = loss.grad_fn
    seen = {first} - {None}
    waiting = list(seen)
    while waiting:
        node = waiting.pop()
        names[node.name().rpartition("::")[2]] += 1
        for following, _ in node.next_functions:
            if following is None:
                continue
            if following.name() == ACCUMULATION:
                note_use(following.variable, number_of(node))
            if following not in seen:
                seen.add(following)
                waiting.append(following)
    return names
