"""The record of one step, against counts by hand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import torch
import torch.distributed as dist

import ddp_perf
from ddp_perf.core.work import HOST_READS, StepWork
from ddp_perf.worker.lone_group import init_lone_group
from tests.torch_versions import needs_cpu_shards
from tests.unit.worker.counting.recorded_steps import (
    code_name,
    record,
    record_all,
    total,
    write_workload,
)

# 4 samples of 3 float32 through weights of 5 × 3, a bias of 5, and the mean.
LINEAR = """
    def build(context):
        batch = (torch.ones(4, 3),)
        return Workload(model=nn.Linear(3, 5), batch=batch, loss=mean, optimizer=sgd)
"""
SAMPLES, WEIGHT, BIAS, OUTPUT = 4 * 3 * 4, 5 * 3 * 4, 5 * 4, 4 * 5 * 4  # bytes
SCALAR = 4
PRODUCT = 2 * 4 * 3 * 5  # floating-point operations


@pytest.fixture
def directory(tmp_path, monkeypatch):
    """A directory from which the workload is imported."""
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@pytest.fixture
def linear(directory):
    write_workload(directory, LINEAR)
    return record(directory)


def operation(work, phase, name):
    (found,) = (one for one in work.operations if (one.phase, one.name) == (phase, name))
    return found.count, found.read, found.written, found.flops


def test_the_forward_of_a_linear_layer_is_one_product_and_a_view_of_its_weight(linear):
    assert operation(linear, "forward", "aten.addmm") == (
        1,
        SAMPLES + WEIGHT + BIAS,
        OUTPUT,
        PRODUCT,
    )
    assert operation(linear, "forward", "aten.t") == (1, 0, 0, 0)
    assert operation(linear, "forward", "aten.mean") == (1, OUTPUT, SCALAR, 0)


def test_its_backward_is_one_product_since_the_batch_needs_no_gradient(linear):
    """The gradient of a mean is an expanded number: it is read once."""
    assert operation(linear, "backward", "aten.expand") == (1, 0, 0, 0)
    assert operation(linear, "backward", "aten.div") == (1, SCALAR, OUTPUT, 0)
    assert operation(linear, "backward", "aten.mm") == (1, OUTPUT + SAMPLES, WEIGHT, PRODUCT)
    assert operation(linear, "backward", "aten.sum") == (1, OUTPUT, BIAS, 0)


def test_the_optimizer_reads_parameters_and_gradients_and_writes_parameters(linear):
    parameters = WEIGHT + BIAS

    assert operation(linear, "optimizer", "aten.add_") == (2, 2 * parameters, parameters, 0)


def test_the_autograd_graph_has_each_node_once(linear):
    assert linear.autograd_nodes == {
        "AccumulateGrad": 2,
        "AddmmBackward0": 1,
        "MeanBackward0": 1,
        "TBackward0": 1,
    }


def test_the_peak_is_above_the_memory_before_the_step(linear):
    """The gradients and the loss of the step before are freed first.

    The last allocation is the bias's gradient. The output is gone by then, since the backward needs
    it not. The loss, its own gradient and that of the output live.
    """
    freed = WEIGHT + BIAS + SCALAR

    assert linear.memory.peak == SCALAR + SCALAR + OUTPUT + WEIGHT + BIAS - freed
    assert linear.memory.kept == 0
    assert linear.kept == ()


def test_every_allocation_of_the_step_is_counted(linear):
    allocations = (OUTPUT, SCALAR, SCALAR, OUTPUT, WEIGHT, BIAS)

    assert linear.memory.allocations == len(allocations)
    assert linear.memory.allocated == sum(allocations)


def test_a_batch_and_parameters_that_serve_all_steps_are_not_saved_memory(linear):
    assert (linear.memory.saved_tensors, linear.memory.saved) == (0, 0)


def test_saved_tensors_are_counted_once_for_each_storage(directory):
    """The square and the product save the same tensor; the mean saves none."""
    write_workload(
        directory,
        """
        def loss(module, batch):
            out = module(*batch)
            return (out * out + out.square()).mean()

        def build(context):
            batch = (torch.ones(4, 3),)
            return Workload(model=nn.Linear(3, 5), batch=batch, loss=loss, optimizer=sgd)
        """,
    )

    memory = record(directory).memory

    assert (memory.saved_tensors, memory.saved) == (1, OUTPUT)


def test_micro_steps_add_up(directory, linear):
    work = record(directory, gradient_accumulation=2)

    assert total(work, "forward", "aten.addmm") == 2
    assert work.autograd_nodes["AddmmBackward0"] == 2
    assert work.calls[0].count == 2 * linear.calls[0].count
    assert work.memory.saved == linear.memory.saved


@pytest.mark.slow
def test_ten_steps_in_a_row_have_equal_records(directory):
    """Also with dropout, a batch for each step, and AdamW, which reads its step count."""
    write_workload(directory, VARIED)

    first, *others = record_all(directory, steps=10)

    assert others == [first] * 9
    assert total(first, "optimizer", "aten._local_scalar_dense") > 0


VARIED = """
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Dropout(0.5))

        def forward(self, samples):
            return self.layers(samples).square()

    def batches():
        while True:
            yield (torch.randn(4, 3),)

    def adamw(parameters):
        return torch.optim.AdamW(parameters)

    def build(context):
        return Workload(model=Model(), batch=batches(), loss=mean, optimizer=adamw)
"""


def test_calls_of_generators_and_lambdas_are_counted_but_no_list_comprehensions(directory):
    """Python 3.12 and later call nothing for a list comprehension."""
    write_workload(
        directory,
        """
        def batches():
            while True:
                yield (torch.ones(4, 3),)

        half = lambda value: value / 2

        def loss(module, batch):
            return sum(half(each) for each in [part.mean() for part in module(*batch)])

        def build(context):
            return Workload(model=nn.Linear(3, 5), batch=batches(), loss=loss, optimizer=sgd)
        """,
    )

    work = record(directory)

    assert {work.sites[one.site].function: one.count for one in work.calls} == {
        "batches": 1,
        "<lambda>": 4,
        "loss": 1,
        code_name("loss.<locals>.<genexpr>"): 4 + 1,
    }


@pytest.mark.skipif(torch.__version__ < "2.8", reason="this torch refuses it beside any hook")
def test_a_loss_with_a_gradient_of_torch_func_is_counted(directory):
    source = """
        def loss(module, batch):
            slope = torch.func.grad(lambda x: (x * x).sum())(batch[0])
            return module(*batch).square().mean() + slope.mean()

        def build(context):
            batch = (torch.ones(4, 3),)
            return Workload(model=nn.Linear(3, 2), batch=batch, loss=loss, optimizer=sgd)
        """
    write_workload(directory, source)

    work = record(directory)

    assert work.memory.saved_tensors == 1  # the output that is squared
    assert work.operations


def test_sparse_gradients_are_reduced_by_their_values(directory, group):
    source = """
        def build(context):
            model = nn.EmbeddingBag(50, 3, sparse=True, mode="sum")
            batch = (torch.arange(8).view(4, 2),)
            return Workload(model=model, batch=batch, loss=mean, optimizer=sgd)
        """
    write_workload(directory, source)

    work = record(directory, strategy="ddp", world_sizes=[2], denominator="ddp-1")

    assert [one.bytes for one in work.collectives] == [8 * 3 * 4]


@pytest.mark.slow
def test_another_process_has_an_equal_record(directory):
    write_workload(directory, VARIED)
    here = record(directory)
    script = (
        "import sys, pathlib, msgspec\n"
        "from tests.unit.worker.counting.recorded_steps import record\n"
        "work = record(pathlib.Path(sys.argv[1]))\n"
        "sys.stdout.buffer.write(msgspec.json.encode(work))"
    )
    root = Path(ddp_perf.__file__).parents[1]
    output = subprocess.run(
        [sys.executable, "-c", script, directory],
        env={"PYTHONPATH": f"{root}:{directory}", "PYTHONHASHSEED": "7"},
        stdout=subprocess.PIPE,
        check=True,
    ).stdout

    assert msgspec.json.decode(output, type=StepWork) == here


@pytest.fixture
def group():
    """A group of two ranks, of which only this one is there."""
    init_lone_group(0, 2)
    yield
    dist.destroy_process_group()


TWO_LAYERS = """
    def build(context):
        model = nn.Sequential(nn.Linear(3, 500), nn.Linear(500, 5))
        batch = (torch.ones(4, 3),)
        return Workload(
            model=model, batch=batch, loss=mean, optimizer=sgd, blocks=list(model)
        )
"""
FIRST, SECOND = (3 * 500 + 500) * 4, (500 * 5 + 5) * 4  # bytes of the gradients of each layer


def test_collectives_have_the_work_that_can_overlap_with_them(directory, group):
    """While the second layer's gradients are reduced, those of the first are computed."""
    write_workload(directory, TWO_LAYERS)

    work = record(directory, world_sizes=[2], ddp={"bucket_cap_mb": SECOND / 2**20})

    ready, last = work.collectives
    assert (ready.phase, ready.kind, ready.bytes, ready.group) == (
        "backward", "all_reduce", SECOND, None,
    )  # fmt: skip
    assert (ready.asynchronous, last.asynchronous) == (True, True)
    assert (ready.flops_after, last.flops_after) == (2 * 4 * 3 * 500, 0)
    assert last.bytes == FIRST
    assert work.structure.buckets == (SECOND, FIRST)
    assert [one.bytes for one in work.structure.collectives] == [SECOND, FIRST]


@needs_cpu_shards
def test_shards_that_fsdp_gathers_and_frees_are_no_kept_memory(directory, group):
    write_workload(directory, TWO_LAYERS)

    first, second = record_all(
        directory, steps=2, world_sizes=[2], strategy="fsdp", fsdp={"wrap": "block"}
    )

    assert first == second
    assert first.memory.kept == 0
    assert {one.kind for one in first.collectives} == {"all_gather", "reduce_scatter"}
    assert {first.sites[one.site].module for one in first.collectives} >= {"*"}


def test_a_copy_between_devices_is_a_host_read(directory):
    """Here to the meta device, since each machine has it."""
    write_workload(
        directory,
        """
        def loss(module, batch):
            out = module(*batch)
            out.detach().to("meta")
            return out.mean()

        def build(context):
            batch = (torch.ones(4, 3),)
            return Workload(model=nn.Linear(3, 5), batch=batch, loss=loss, optimizer=sgd)
        """,
    )

    work = record(directory)

    assert total(work, "forward", "copy_between_devices") == 1
    assert "copy_between_devices" in HOST_READS
