"""A recorded step of a small workload, in the test's own process."""

from __future__ import annotations

import importlib
import sys
import textwrap

from ddp_perf.worker.counting.sites import note_makers
from ddp_perf.worker.counting.step_recorder import record_step
from ddp_perf.worker.steps.protocol import follow_plan
from ddp_perf.worker.steps.trainer import Losses, Trainer
from tests.builders import make_cases
from tests.unit.worker.contexts import make_context

HEAD = """
import torch
from torch import nn
from ddp_perf.workloads.workload import Workload

def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.5)

def mean(module, batch):
    return module(*batch).mean()
"""


def code_name(qualified):
    """Return the name of a function as its code has it: in Python 3.10 the last part only."""
    return qualified if sys.version_info >= (3, 11) else qualified.rpartition(".")[2]


def write_workload(directory, source):
    """Write the module ``their_model`` after the usual imports, and let it be imported anew."""
    (directory / "their_model.py").write_text(HEAD + textwrap.dedent(source), encoding="utf-8")
    sys.modules.pop("their_model", None)
    importlib.invalidate_caches()


def record(directory, *, steps=1, **changes):
    """Return the last of ``steps`` records of the workload in ``directory``."""
    return record_all(directory, steps=steps, **changes)[-1]


def record_all(directory, *, steps, **changes):
    """Return the records of ``steps`` calls of the recorder, of one trainer."""
    suite = {"workload": "their_model:build", "model": {}, "world_sizes": [1], "batch_sizes": [4]}
    (case,) = make_cases(**{**suite, **changes})
    with note_makers() as makers:
        trainer = Trainer(case, make_context())
    trainer.losses = Losses(last=0)
    paths = (str(directory),)
    return [
        follow_plan(record_step(trainer, makers=makers, import_paths=paths), trainer.step)
        for _ in range(steps)
    ]


def total(work, phase, name, field="count"):
    """Return the sum of a field over all sites and types of an operation."""
    found = (one for one in work.operations if (one.phase, one.name) == (phase, name))
    return sum(getattr(one, field) for one in found)


def lines(work, phase, name):
    """Return the texts of the lines at which an operation is dispatched, with their modules."""
    found = (one for one in work.operations if (one.phase, one.name) == (phase, name))
    return {(work.sites[one.site].text, work.sites[one.site].module) for one in found}
