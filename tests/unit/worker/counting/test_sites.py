"""The line that each operation, call and kept tensor of a user's workload is attributed to."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch.distributed as dist

import ddp_perf
from ddp_perf.worker.counting.sites import SiteNames, SourceLine, Spot
from ddp_perf.worker.lone_group import init_lone_group
from ddp_perf.worker.steps.trainer import Trainer
from tests.torch_versions import needs_cpu_shards
from tests.unit.worker.counting.recorded_steps import (
    code_name,
    lines,
    record,
    total,
    write_workload,
)

THEIRS = """
    import itertools

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Sequential(
                nn.Linear(4, 4),
                nn.Dropout(0.5),
            )
            self.last = nn.Linear(4, 4)

        def forward(self, hidden):
            hidden = self.inner(hidden)
            return self.last(hidden.clone())

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(Block() for _ in range(2))
            self.head = nn.Linear(4, 4, bias=False).to(torch.bfloat16)

        def forward(self, hidden):
            for layer in self.layers:
                hidden = layer(hidden)
            return hidden @ self.head.weight.float()

    kept = []

    def loss(module, batch):
        out = module(*batch)
        value = torch.stack([sample.exp().sum() for sample in out]).mean()
        kept.append(out.detach().sqrt())
        if value.item() < 0:
            raise ValueError
        return value

    def double(module, gradients, outputs):
        return (gradients[0] * 2,)

    def build_optimizer(parameters):
        parameters = list(parameters)
        optimizer = torch.optim.AdamW(parameters)

        def clip(*_):
            nn.utils.clip_grad_norm_(parameters, 1.0)

        optimizer.register_step_pre_hook(clip)
        return optimizer

    def build(context):
        model = Model()
        model.layers[1].register_full_backward_hook(double)
        return Workload(
            model=model,
            batch=(torch.ones(3, 4),),
            loss=loss,
            optimizer=build_optimizer,
            blocks=list(model.layers),
        )
"""
BLOCK = "layers.*"


@pytest.fixture
def directory(tmp_path, monkeypatch):
    """A directory with the workload, from which it is imported."""
    monkeypatch.syspath_prepend(tmp_path)
    write_workload(tmp_path, THEIRS)
    return tmp_path


@pytest.fixture
def work(directory):
    return record(directory)


def test_an_operation_has_the_innermost_line_of_the_users(work):
    """Also where the user's line calls a library's module, which has its own path."""
    assert lines(work, "forward", "aten.clone") == {("return self.last(hidden.clone())", BLOCK)}
    assert ("return self.last(hidden.clone())", f"{BLOCK}.last") in lines(
        work, "forward", "aten.addmm"
    )
    assert lines(work, "forward", "aten._local_scalar_dense") == {("if value.item() < 0:", "")}
    assert lines(work, "forward", "aten._to_copy") == {
        ("return hidden @ self.head.weight.float()", "")
    }


def test_a_module_that_a_librarys_module_calls_has_the_line_that_made_it(work):
    assert lines(work, "forward", "aten.bernoulli_") == {("nn.Dropout(0.5),", f"{BLOCK}.inner.*")}
    assert ("nn.Linear(4, 4),", f"{BLOCK}.inner.*") in lines(work, "forward", "aten.addmm")


def test_an_operation_of_the_backward_has_the_line_of_its_forward(work):
    assert lines(work, "backward", "aten.native_dropout_backward") <= {("nn.Dropout(0.5),", BLOCK)}
    made = "value = torch.stack([sample.exp().sum() for sample in out]).mean()"
    assert lines(work, "backward", "aten.select_backward") | lines(
        work, "backward", "aten.stack"
    ) == {(made, "")}
    assert ("nn.Linear(4, 4),", f"{BLOCK}.inner.*") in lines(work, "backward", "aten.mm")


def test_a_hook_of_the_backward_has_its_own_line(work):
    assert ("return (gradients[0] * 2,)", BLOCK) in lines(work, "backward", "aten.mul")


def test_the_optimizer_has_the_line_that_made_it_and_its_hooks_have_theirs(work):
    made = ("optimizer = torch.optim.AdamW(parameters)", "")
    assert lines(work, "optimizer", "aten.addcdiv_") == {made}
    clip = ("nn.utils.clip_grad_norm_(parameters, 1.0)", "")
    assert clip in lines(work, "optimizer", "aten.linalg_vector_norm")


def test_each_sample_of_a_loop_is_counted(work):
    made = "value = torch.stack([sample.exp().sum() for sample in out]).mean()"

    assert lines(work, "forward", "aten.exp") == {(made, "")}
    assert total(work, "forward", "aten.exp") == 3


def test_a_tensor_in_a_list_is_kept_memory_of_its_line(work):
    size = 3 * 4 * 4

    assert work.memory.kept == size
    assert [(work.sites[one.site].text, one.bytes) for one in work.kept] == [
        ("kept.append(out.detach().sqrt())", size)
    ]


def test_the_users_functions_are_counted_by_their_definitions(work):
    calls = [(work.sites[one.site], one.count) for one in work.calls]

    assert sorted((site.function, site.text, count) for site, count in calls) == sorted(
        [
            (code_name("Block.forward"), "def forward(self, hidden):", 2),
            (code_name("Model.forward"), "def forward(self, hidden):", 1),
            (code_name("build_optimizer.<locals>.clip"), "def clip(*_):", 1),
            ("double", "def double(module, gradients, outputs):", 1),
            ("loss", "def loss(module, batch):", 1),
        ]
    )


def test_a_file_is_named_from_its_import_path(work):
    assert {site.file for site in work.sites} == {
        "their_model.py",
        "ddp_perf/worker/steps/trainer.py",
    }


@pytest.fixture
def group():
    """A group of two ranks, of which only this one is there."""
    init_lone_group(0, 2)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize("strategy", ["ddp", pytest.param("fsdp", marks=needs_cpu_shards)])
def test_a_strategy_keeps_the_lines_of_the_backward(directory, group, strategy):
    work = record(directory, world_sizes=[2], strategy=strategy)

    assert ("return self.last(hidden.clone())", f"{BLOCK}.last") in lines(
        work, "backward", "aten.mm"
    )
    assert lines(work, "forward", "aten.bernoulli_") == {("nn.Dropout(0.5),", f"{BLOCK}.inner.*")}


def test_a_forward_that_is_computed_again_has_its_lines_in_the_backward(directory):
    work = record(directory, activation_checkpointing=True)

    for phase in ("forward", "backward"):
        assert lines(work, phase, "aten.clone") >= {("return self.last(hidden.clone())", BLOCK)}
    assert total(work, "backward", "aten.bernoulli_") == total(work, "forward", "aten.bernoulli_")


def test_a_line_of_this_package_is_named_alike_wherever_it_is_installed():
    """A virtual environment is often inside the project, and its path has Python's version."""
    installed = Path(ddp_perf.__file__).parent.parent
    names = SiteNames([str(installed.parent)])
    site = names.site(Spot(SourceLine(Trainer.step.__code__, 1), ""))
    assert site.file == "ddp_perf/worker/steps/trainer.py"
