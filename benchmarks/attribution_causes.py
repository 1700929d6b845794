"""Causes of slower steps that no rule of the explanation was written for, and the right answers.

Each cause is an edit of a copy of a workload's source, or a change of its environment, in one or
two sizes. The right answers are those that a user could act on. They were written down before
anything was measured. An answer is the first cause of an explanation: its kind, with the phase that
changed most if it is "compute", and with the rank if it is a straggler.
"""

from __future__ import annotations

from typing import Literal

import msgspec

FORWARD, BACKWARD, OPTIMIZER = (
    f"compute: {phase}" for phase in ("forward", "backward", "optimizer")
)
COMPUTE = (FORWARD, BACKWARD, OPTIMIZER)
UNCHANGED = "unchanged"  # the name of a cause that changes nothing


class Neighbour(msgspec.Struct, frozen=True, kw_only=True):
    """Another process on one of the machine's cores, busy for a share of the time."""

    core: int  # index among the allowed cores; rank r has core r
    share: float
    work: Literal["cpu", "memory"] = "cpu"


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """What makes a session slower. The default changes nothing."""

    edits: tuple[tuple[str, str], ...] = ()  # of the workload's source: old text, new text
    variables: dict[str, str] = {}
    neighbour: Neighbour | None = None
    link_bits_per_s: float | None = None
    quota_cores: float | None = None


class InjectedCause(msgspec.Struct, frozen=True, kw_only=True):
    """One cause with its sizes, and the answers that count as right."""

    name: str
    right: tuple[str, ...]
    sizes: dict[str, Effect]
    # The words of a right disturbance: the gate may also say INVALID, and name it. None: never.
    disturbance: str | None = None


def _edits(old: str, **sizes: str) -> dict[str, Effect]:
    """Return effects that each replace the same text by another one."""
    return {size: Effect(edits=((old, new),)) for size, new in sizes.items()}


def _in_loss(**sizes: str) -> dict[str, Effect]:
    """Return effects that add lines after the loss is computed."""
    result = "    return functional.cross_entropy(logits, labels)\n"
    loss, end = result.replace("return", "loss ="), "    return loss\n"
    return _edits(result, **{size: f"{loss}{lines}{end}" for size, lines in sizes.items()})


def _importing(line: str, sizes: dict[str, Effect]) -> dict[str, Effect]:
    """Add an import to each effect."""
    first = "import torch\nfrom torch import nn\n"
    edit = first, f"{line}\n{first}"
    return {size: Effect(edits=(edit, *one.edits)) for size, one in sizes.items()}


_INNER = "        inner = functional.gelu(self.up(self.norm_2(hidden)))\n"
_RESULT = "        return hidden + self.down(inner)\n"
_SAMPLE = "        return features, torch.tensor(index % CLASSES)\n"
_CALL = "            hidden = block(hidden)\n"
_OPTIMIZER = "optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.01, momentum=0.9),"
_BUILD = "def build(context: BuildContext) -> Workload:\n"

_TOKENS = """\
        features = torch.stack([(token - token.mean()) / token.std() for token in features[::{}]])
        features = features.repeat_interleave({}, dim=0)
"""
_CHECK = """\
        assert all(one.item() < 1e6 for one in hidden.detach().reshape(-1, {}).std(dim=1))
"""
_PENALTY = """\
    for logit in logits.repeat(2, 1).flatten()[:{}]:
        loss = loss + 1e-6 * logit.square()
"""
_SEARCH = """\
    for parameter in {} * list(module.parameters()):
        seen, queue = set(), [loss.grad_fn]
        while queue:
            node = queue.pop()
            if node is None or node in seen or getattr(node, "variable", None) is parameter:
                continue
            seen.add(node)
            queue += [function for function, _ in node.next_functions]
"""
_LOG = """\
    if dist.get_rank() == 0:
        for parameter in module.parameters():
            {}
"""
_CLIPPED = """\
class Clipped(torch.optim.SGD):
    def step(self, closure=None):
        for group in self.param_groups:
            {}
        return super().step(closure)


"""


def _clipping(line: str) -> Effect:
    """Return gradient clipping, as a subclass of the optimizer."""
    clipped = _OPTIMIZER.replace("torch.optim.SGD", "Clipped")
    return Effect(edits=((_BUILD, _CLIPPED.format(line) + _BUILD), (_OPTIMIZER, clipped)))


CAUSES = (
    InjectedCause(
        name="needless-cast",  # float64 and back, in each block
        right=(FORWARD, BACKWARD),
        sizes=_edits(
            _INNER,
            small=_INNER.replace("hidden)", "hidden.double().float()).double().float()"),
            large=_INNER.replace(")))\n", ")).double().float())\n"),
        ),
    ),
    InjectedCause(
        name="item-each-block",  # a check for overflow
        right=("host sync", FORWARD),
        sizes=_edits(
            _RESULT,
            small=_CHECK.format("WIDTH") + _RESULT,
            large=_CHECK.format("WIDTH // 4") + _RESULT,
        ),
    ),
    InjectedCause(
        name="forward-twice",  # metrics of a part of the batch, under no_grad
        right=(FORWARD,),
        sizes=_in_loss(
            small="    with torch.no_grad():\n        module(features[:1])\n",
            large="    with torch.no_grad():\n        module(features[:4])\n",
        ),
    ),
    InjectedCause(
        name="python-loop-in-loss",
        right=(FORWARD, BACKWARD),
        sizes=_in_loss(small=_PENALTY.format(80), large=_PENALTY.format(160)),
    ),
    InjectedCause(
        name="bigger-hidden-layer",  # more of everything: its gradients are larger, too
        right=(*COMPUTE, "more communication"),
        sizes=_edits(
            "HIDDEN = 4 * WIDTH\n",
            small="HIDDEN = 9 * WIDTH // 2\n",
            large="HIDDEN = 5 * WIDTH\n",
        ),
    ),
    InjectedCause(
        name="search-of-the-graph",  # for unused parameters, in Python
        right=(FORWARD,),
        sizes=_in_loss(small=_SEARCH.format(1), large=_SEARCH.format(2)),
    ),
    InjectedCause(
        name="gradient-clipping",
        right=(OPTIMIZER,),
        sizes={
            "small": _clipping('nn.utils.clip_grad_norm_(group["params"], 1.0)'),
            "large": _clipping('[nn.utils.clip_grad_norm_(one, 1.0) for one in group["params"]]'),
        },
    ),
    InjectedCause(
        name="checkpointed-blocks",  # their forward runs again in the backward
        right=(BACKWARD,),
        sizes=_importing(
            "from torch.utils.checkpoint import checkpoint",
            _edits(
                _CALL,
                small="            last = block is self.blocks[-1]\n"
                "            hidden = checkpoint(block, hidden, use_reentrant=False) if last"
                " else block(hidden)\n",
                large="            first = block is self.blocks[0]\n"
                "            hidden = block(hidden) if first"
                " else checkpoint(block, hidden, use_reentrant=False)\n",
            ),
        ),
    ),
    InjectedCause(
        name="activation-by-hand",  # GELU in five operators instead of one
        right=(FORWARD, BACKWARD),
        sizes=_edits(
            _INNER,
            one="        up = self.up(self.norm_2(hidden))\n"
            "        inner = up * 0.5 * (1 + torch.erf(up / 2**0.5))\n",
        ),
    ),
    InjectedCause(
        name="all-reduce-of-metrics",
        right=("more communication",),
        sizes=_importing(
            "import torch.distributed as dist",
            _in_loss(
                small="    dist.all_reduce(loss.detach().repeat(50_000))\n",
                large="    dist.all_reduce(loss.detach().repeat(500_000))\n",
            ),
        ),
    ),
    InjectedCause(
        name="slow-transform",  # of the dataset, in Python
        right=("data",),
        sizes=_edits(
            _SAMPLE,
            small=_TOKENS.format(4, 4) + _SAMPLE,
            large=_TOKENS.format(2, 2) + _SAMPLE,
        ),
    ),
    InjectedCause(
        name="rank-0-logs",  # figures of every parameter
        right=("straggler of rank 0",),
        sizes=_importing(
            "import torch.distributed as dist",
            _in_loss(
                small=_LOG.format("parameter.detach().std()"),
                large=_LOG.format("parameter.detach().std(), parameter.detach().histc(50)"),
            ),
        ),
    ),
    InjectedCause(
        name="older-instructions",  # kernels without AVX, by a variable of torch
        right=COMPUTE,
        sizes={"one": Effect(variables={"ATEN_CPU_CAPABILITY": "default"})},
    ),
    InjectedCause(
        name="slow-link",
        right=("communication",),
        sizes={"small": Effect(link_bits_per_s=6e9), "large": Effect(link_bits_per_s=4e9)},
    ),
    InjectedCause(
        name="busy-core",  # of rank 1
        right=("machine", "host", "straggler of rank 1"),
        disturbance="other processes",
        sizes={
            "small": Effect(neighbour=Neighbour(core=1, share=0.08)),
            "large": Effect(neighbour=Neighbour(core=1, share=0.2)),
        },
    ),
    InjectedCause(
        name="busy-memory",  # a copying process on a core that no rank has
        right=("machine", *COMPUTE),
        sizes={"one": Effect(neighbour=Neighbour(core=2, share=1.0, work="memory"))},
    ),
    InjectedCause(
        name="cpu-quota",
        right=("machine", "host"),
        disturbance="CPU quota",
        sizes={"small": Effect(quota_cores=1.75), "large": Effect(quota_cores=1.6)},
    ),
)
BY_NAME = {cause.name: cause for cause in CAUSES}
