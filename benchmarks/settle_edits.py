"""Edits that make the training of ``workloads/training`` slower, and what must be named of each.

The first twelve are those that the two stages of the gate were asked to find; the other ten were
thought of afterwards. They were written down, with the ranks that become slower, before any session
judged one of them. Half of each group is held out: nothing is tuned on it.

An edit is a change of the code of one file. A suite option (smaller buckets, say) is no such edit:
the case is then another one, and has no verdict on its times.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

SOURCES = Path(__file__).parent / "workloads"  # of the package `training`
MODEL, DATA, LOSS, OPTIMIZER, BUILD = (
    f"training/{name}.py" for name in ("model", "data", "loss", "optimizer", "build")
)


class SlowEdit(msgspec.Struct, frozen=True, kw_only=True):
    """An edit of one file of the training, which makes a step slower on these numbers of ranks."""

    name: str
    file: str  # from the root of the project on
    edits: tuple[tuple[str, str], ...]  # old text, which is there once, and new text
    marks: tuple[str, ...]  # a part of each edited line that takes time: one of them must be named
    group: Literal["table", "own"]
    ranks: tuple[int, ...] = (1, 2)
    held_out: bool = False
    committed: bool = False  # False: the tree has it, and no commit

    def applied(self, source: str) -> str:
        """Return the file with the edit. Raises ValueError if it does not apply."""
        for old, new in self.edits:
            if source.count(old) != 1:
                times = source.count(old)
                raise ValueError(f"{self.name}: {old!r} is {times} times in {self.file}, not once")
            source = source.replace(old, new)
        return source

    def make(self, project: Path) -> None:
        """Edit the file of the project. Raises ValueError if the edit does not apply."""
        path = project / self.file
        path.write_text(self.applied(path.read_text(encoding="utf-8")), encoding="utf-8")

    def marked_lines(self, source: str) -> tuple[int, ...]:
        """Return the numbers of the lines of the edited file that may be named, from 1 on."""
        return tuple(
            number
            for number, line in enumerate(source.splitlines(), start=1)
            if any(mark in line for mark in self.marks)
        )


def _before(line: str, *added: str) -> tuple[str, str]:
    """Return an edit that adds lines, indented as that line is, before it."""
    indent = line[: len(line) - len(line.lstrip())]
    return line, "".join(f"{indent}{one}\n" for one in added) + line


def _importing(line: str, before: str = "import torch\n") -> tuple[str, str]:
    return before, f"{line}\n{before}"


_SECOND = "        hidden = torch.relu(self.second(hidden))\n"
_RESULT = "        return self.last(hidden)\n"
_BATCH = "        yield features, labels\n"
_FORWARD = "    logits = module(features)\n"
_LOSS = "    return functional.cross_entropy(logits, labels)\n"
_STEP = "        return super().step(closure)\n"
_TIME_IN_DATA = ("import itertools\n", "import itertools\nimport time\n")

_QUANTILES = '''class Watched(torch.autograd.Function):
    """Passes its gradient on, and computes its quantiles."""

    @staticmethod
    def forward(context, values):
        return values.view_as(values)

    @staticmethod
    def backward(context, gradient):
        np.quantile(np.abs(gradient.numpy().astype(np.float64)), (0.5, 0.9, 0.99))
        return gradient


class Net(nn.Module):
'''
_THIRD = "        hidden = torch.relu(self.third(hidden))\n"
_DOUBLE = """        weight, bias = self.third.weight.double(), self.third.bias.double()
        hidden = torch.relu(nn.functional.linear(hidden.double(), weight, bias).float())
"""
_AVERAGES = """        for parameter in self.param_groups[0]["params"]:
            values = parameter.detach().double()
            average = self.averages.setdefault(parameter, values.clone())
            average.mul_(0.999).add_(0.001 * values)
"""

_TABLE = (
    SlowEdit(
        name="sleep",
        file=MODEL,
        edits=(_importing("import time\n"), _before(_SECOND, "time.sleep(0.007)")),
        marks=("time.sleep(0.007)",),
        group="table",
    ),
    SlowEdit(
        name="short-sleep",
        file=MODEL,
        edits=(_importing("import time\n"), _before(_RESULT, "time.sleep(0.003)")),
        marks=("time.sleep(0.003)",),
        group="table",
        held_out=True,
        committed=True,
    ),
    SlowEdit(
        name="slow-input",
        file=DATA,
        edits=(_before(_BATCH, "features = torch.tensor(features.tolist())"),),
        marks=("features.tolist()",),
        group="table",
        committed=True,
    ),
    SlowEdit(
        name="whole-table",
        file=DATA,
        edits=(("features = table[", "features = table[torch.arange(ROWS)]["),),
        marks=("table[torch.arange(ROWS)]",),
        group="table",
        held_out=True,
    ),
    SlowEdit(
        name="rank-1-waits",
        file=DATA,
        edits=(_TIME_IN_DATA, _before(_BATCH, "if context.rank == 1:", "    time.sleep(0.006)")),
        marks=("if context.rank == 1:", "time.sleep(0.006)"),
        group="table",
        ranks=(2,),
        committed=True,
    ),
    SlowEdit(
        name="rank-1-computes",
        file=DATA,
        edits=(_before(_BATCH, "if context.rank == 1:", "    features.sort(dim=1)"),),
        marks=("if context.rank == 1:", "features.sort(dim=1)"),
        group="table",
        ranks=(2,),
        held_out=True,
    ),
    SlowEdit(
        name="stall",
        file=DATA,
        edits=(_TIME_IN_DATA, _before(_BATCH, "if step % 10 == 9:", "    time.sleep(0.040)")),
        marks=("if step % 10 == 9:", "time.sleep(0.040)"),
        group="table",
        held_out=True,
        committed=True,
    ),
    SlowEdit(
        name="forward-twice",
        file=LOSS,
        edits=(_before(_FORWARD, "module(features)"),),
        marks=("    module(features)",),
        group="table",
    ),
    SlowEdit(
        name="forward-for-metrics",
        file=LOSS,
        edits=(_before(_LOSS, "with torch.no_grad():", "    module(features)"),),
        marks=("with torch.no_grad():", "        module(features)"),
        group="table",
        held_out=True,
        committed=True,
    ),
    SlowEdit(
        name="numpy-in-backward",
        file=MODEL,
        edits=(
            _importing("import numpy as np"),
            ("class Net(nn.Module):\n", _QUANTILES),
            _before(_SECOND, "hidden = Watched.apply(hidden)"),
            _before(_THIRD, "hidden = Watched.apply(hidden)"),
        ),
        marks=("np.quantile", "Watched.apply(hidden)", "return values.view_as"),
        group="table",
    ),
    SlowEdit(
        name="python-in-optimizer",
        file=OPTIMIZER,
        edits=(
            _before(
                _STEP,
                'second = self.param_groups[0]["params"][2]',
                "[row.norm() for row in second.grad]",
            ),
        ),
        marks=("row.norm()",),
        group="table",
        committed=True,
    ),
    SlowEdit(
        name="loop-in-optimizer",
        file=OPTIMIZER,
        edits=(_before(_STEP, "self.digits = sum(len(str(one)) for one in range(20_000))"),),
        marks=("for one in range(20_000)",),
        group="table",
        held_out=True,
    ),
)

_OWN = (
    SlowEdit(
        name="item-of-each-logit",
        file=LOSS,
        edits=(
            _before(
                _LOSS, "assert all(one.item() == one.item() for one in logits.flatten())  # no NaN"
            ),
        ),
        marks=("one.item()",),
        group="own",
    ),
    SlowEdit(
        name="clone-of-the-table",
        file=DATA,
        edits=(("features = table[", "features = table.clone()["),),
        marks=("table.clone()",),
        group="own",
        held_out=True,
        committed=True,
    ),
    SlowEdit(
        name="layer-in-float64",
        file=MODEL,
        edits=((_THIRD, _DOUBLE),),
        marks=("self.third.weight.double()", "hidden.double()"),
        group="own",
        committed=True,
    ),
    SlowEdit(
        name="all-reduce-of-weights",
        file=LOSS,
        edits=(
            _importing("import torch.distributed as dist", "from torch import nn\n"),
            _before(
                _LOSS,
                "if dist.is_initialized() and dist.get_world_size() > 1:",
                "    for weight in module.parameters():",
                "        dist.all_reduce(weight.detach().clone())",
            ),
        ),
        marks=("dist.all_reduce(", "for weight in module.parameters()"),
        group="own",
        ranks=(2,),
        held_out=True,
    ),
    SlowEdit(
        name="garbage",
        file=OPTIMIZER,
        edits=(_importing("import gc\n"), _before(_STEP, "gc.collect()")),
        marks=("gc.collect()",),
        group="own",
        held_out=True,
        committed=True,
    ),
    SlowEdit(
        name="log-of-each-step",
        file=LOSS,
        edits=(
            _importing("import json\nimport tempfile\n"),
            _before(
                _LOSS,
                'with tempfile.TemporaryFile("w") as log:',
                "    json.dump(logits.tolist(), log)",
            ),
        ),
        marks=("tempfile.TemporaryFile", "json.dump("),
        group="own",
    ),
    SlowEdit(
        name="spectral-norm",
        file=MODEL,
        edits=(_before(_RESULT, "torch.linalg.matrix_norm(self.first.weight[:64], 2)"),),
        marks=("torch.linalg.matrix_norm",),
        group="own",
        held_out=True,
    ),
    SlowEdit(
        name="four-threads",
        file=BUILD,
        edits=(
            _importing("import torch\n", "from ddp_perf."),
            _before("    return Workload(\n", "torch.set_num_threads(4)"),
        ),
        marks=("torch.set_num_threads(4)",),
        group="own",
        committed=True,
    ),
    SlowEdit(
        name="average-of-weights",
        file=OPTIMIZER,
        edits=(
            ("    steps = 0\n", "    steps = 0\n    averages: dict = {}\n"),
            (_STEP, _AVERAGES + _STEP),
        ),
        marks=(
            "parameter.detach().double()",
            "self.averages.setdefault",
            "average.mul_",
            'self.param_groups[0]["params"]',
        ),
        group="own",
        held_out=True,
    ),
    SlowEdit(
        name="lock-of-all-ranks",
        file=LOSS,
        edits=(
            _importing("import fcntl\nimport tempfile\n"),
            (
                _FORWARD,
                '    with open(f"{tempfile.gettempdir()}/training.lock", "w") as lock:\n'
                "        fcntl.flock(lock, fcntl.LOCK_EX)\n"
                f"    {_FORWARD}",
            ),
        ),
        marks=("/training.lock", "fcntl.flock(", "        logits = module(features)"),
        group="own",
        ranks=(2,),
        committed=True,
    ),
)

EDITS = (*_TABLE, *_OWN)
BY_NAME = {edit.name: edit for edit in EDITS}
