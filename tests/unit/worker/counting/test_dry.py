"""A dry run dispatches what a computed run dispatches, in tensors that nothing was written to."""

from __future__ import annotations

import resource
from contextlib import nullcontext
from dataclasses import dataclass, field

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from ddp_perf.errors import CountError
from ddp_perf.worker.counting.dry import COMPUTED_BYTES, DryRun

LARGE = COMPUTED_BYTES  # floats: four times as many bytes as are computed


@dataclass
class Recorder(TorchDispatchMode):
    """Records each operation with its results: sizes, strides, and which share memory."""

    seen: list = field(default_factory=list)

    def __post_init__(self):
        super().__init__()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        storages = [one.untyped_storage()._cdata for one in _tensors([args, kwargs])]
        for one in _tensors(out):
            shared = one.untyped_storage()._cdata in storages
            layout = one.shape, one.stride(), one.dtype, one.storage_offset()
            self.seen.append((str(func), *layout, shared))
        return out


def _tensors(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return (
        [one for each in value for one in _tensors(each)] if isinstance(value, list | tuple) else []
    )


def _trained(model, inputs, optimizer):
    def train():
        torch.manual_seed(0)
        module = model()
        updates = optimizer(module.parameters())
        for _ in range(2):
            updates.zero_grad()
            out = module(inputs())
            functional.mse_loss(out, torch.zeros_like(out), reduction="none").mean().backward()
            nn.utils.clip_grad_norm_(module.parameters(), 1.0)
            updates.step()

    return train


def _in_place():
    x = torch.zeros(LARGE)
    assert x.add_(1) is x
    y = x[: LARGE // 2]
    y.mul_(2)
    torch._foreach_add_([x, y], 1.0)
    torch.add(x, 1, out=x)
    x.resize_(LARGE // 4).unsqueeze_(0)


def _out():
    into = torch.empty(0)
    torch.mm(torch.ones(300, 300), torch.ones(300, 300), out=into)
    assert into.shape == (300, 300)


def _indexed():
    x = torch.randn(512, 512)
    places = x.abs().flatten().topk(600).indices
    values = x.flatten()[places]
    x.view(-1)[places] = 0
    x.sort(dim=0)
    torch.cat([values, values]).cumsum(0).split(100)


def _attention():
    query = torch.randn(2, 4, 128, 64, requires_grad=True)
    out = functional.scaled_dot_product_attention(query, query, query, is_causal=True)
    out.transpose(1, 2).flatten(2).sum().backward()


def _autocast():
    layer = nn.Linear(512, 512)
    with torch.autocast("cpu", torch.bfloat16):
        loss = layer(torch.randn(256, 512)).float().sum()
    loss.backward()


def _convolution():
    return nn.Sequential(nn.Conv2d(3, 32, 3), nn.BatchNorm2d(32), nn.ReLU(), nn.AvgPool2d(2))


def _convolutions():
    pool = nn.AdaptiveAvgPool2d(1)
    return nn.Sequential(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 8, 1), pool, nn.Flatten())


def _encoder():
    return nn.TransformerEncoderLayer(64, 4, 256, batch_first=True)


STEPS = {
    "linear": _trained(
        lambda: nn.Linear(1024, 1024), lambda: torch.randn(64, 1024), torch.optim.SGD
    ),
    "convolution": _trained(
        _convolution, lambda: torch.randn(8, 3, 64, 64), lambda p: torch.optim.SGD(p, momentum=0.9)
    ),
    "channels last": _trained(
        lambda: _convolutions().to(memory_format=torch.channels_last),
        lambda: torch.randn(8, 3, 64, 64),
        torch.optim.SGD,
    ),
    "transformer": _trained(_encoder, lambda: torch.randn(16, 128, 64), torch.optim.AdamW),
    "lists of tensors": _trained(
        _encoder, lambda: torch.randn(16, 128, 64), lambda p: torch.optim.Adam(p, foreach=True)
    ),
    "in place": _in_place,
    "out": _out,
    "indexed": _indexed,
    "attention": _attention,
    "autocast": _autocast,
}


@pytest.mark.parametrize("name", STEPS)
def test_a_dry_run_dispatches_what_a_computed_run_does(name):
    if name == "channels last" and torch.__version__ < "2.11":
        pytest.skip("this torch gives the gradient of a convolution other strides where it is dry")
    STEPS[name]()  # what torch does once in a process is no part of it
    seen = []
    for mode in (nullcontext(), DryRun()):
        with mode, Recorder() as recorder:
            STEPS[name]()
        seen.append(recorder.seen)

    assert seen[0] == seen[1]


def test_large_tensors_are_not_computed_and_small_ones_are():
    with DryRun():
        large, small = torch.ones(LARGE), torch.ones(4)

    assert large.count_nonzero() == 0
    assert small.sum() == 4


def test_what_follows_from_a_value_that_is_not_computed_is_not_computed():
    with DryRun():
        mean = torch.ones(LARGE).mean()
        inverse = 1 / mean

    assert mean.item() == inverse.item() == 0


def test_an_operation_in_place_on_what_is_not_computed_leaves_the_value():
    """The scale of a GradScaler is read, and must not become zero."""
    with DryRun():
        scale = torch.full((), 65536.0)
        scale.mul_(torch.ones(LARGE).mean())
        assert scale.item() == 65536
        view = scale.view(1)
        view.add_(1)

    assert scale.item() == 65536


def test_a_number_that_changes_in_each_step_is_inferred_once():
    """Adam's bias correction is such a number, for lists of all parameters."""
    mode = DryRun()
    with mode:
        parameters = [torch.ones(LARGE) for _ in range(3)]
        for step in range(1, 4):
            torch._foreach_div_(parameters, 1 / step)
    assert len([key for key in mode._inferred if "_foreach_div_" in str(key[0])]) == 1


def test_a_shape_that_depends_on_values_that_are_not_computed_is_refused():
    with DryRun():
        assert torch.arange(4).nonzero().shape == (3, 1)
        with pytest.raises(CountError, match=r"aten.nonzero.default: its result depends on values"):
            torch.ones(LARGE).nonzero()
        with pytest.raises(CountError, match=r"aten.index.Tensor: its result depends on values"):
            torch.ones(LARGE)[torch.ones(LARGE) > 0]


def test_a_branch_on_values_that_are_not_computed_is_refused():
    with DryRun():
        assert torch.ones(4).mean() > 0.5
        with pytest.raises(CountError, match="its result depends on values"):
            bool(torch.ones(LARGE).mean() > 0.5)


@pytest.mark.filterwarnings("ignore:Sparse invariant checks:UserWarning")
def test_the_size_of_a_sparse_tensor_without_duplicates_is_refused():
    places = torch.zeros(1, 4, dtype=torch.int64)
    with DryRun(), pytest.raises(CountError, match="its result depends on values"):
        torch.sparse_coo_tensor(places, torch.ones(4), check_invariants=False).coalesce()


def test_what_nothing_is_written_to_is_zero():
    """A collective that does nothing leaves it so, and the host may read it."""
    with DryRun():
        for _ in range(100):
            torch.full((8,), 7.0)
            assert torch.empty(8).tolist() == [0.0] * 8


def test_the_error_of_wrong_sizes_is_that_of_torch():
    with DryRun(), pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied"):
        torch.ones(300, 400) @ torch.ones(300, 400)


def test_an_operator_that_torch_cannot_infer_is_computed():
    ran = []

    @torch.library.custom_op("ddp_perf_tests::doubled", mutates_args=())
    def doubled(x: torch.Tensor) -> torch.Tensor:
        ran.append(x.shape)
        return x * 2

    with DryRun():
        out = doubled(torch.ones(LARGE)).sum()

    assert ran == [(LARGE,)]
    assert out.item() == 0


def test_two_results_may_share_fresh_memory():
    """FSDP's operator before an all-gather returns its buffer, and its own part of it."""
    library = torch.library.Library("ddp_perf_views", "DEF")
    library.define("parts(Tensor x) -> (Tensor, Tensor)")

    def parts(x):
        whole = torch.empty(2 * len(x), device=x.device)
        return whole[len(x) :], whole

    library.impl("parts", parts, "CompositeExplicitAutograd")
    with DryRun():
        part, whole = torch.ops.ddp_perf_views.parts(torch.ones(LARGE))

    assert whole.untyped_storage()._cdata == part.untyped_storage()._cdata
    assert (part.storage_offset(), whole.storage_offset()) == (LARGE, 0)
    assert (part.shape, whole.shape) == ((LARGE,), (2 * LARGE,))


def test_a_tensor_larger_than_any_machines_memory_takes_none():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with DryRun():
        x = torch.empty(2**20, 2**18).normal_()  # 1 TiB
        y = (x @ torch.ones(2**18, 2**10)).relu_()
    assert y.shape == (2**20, 2**10)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024  # KiB


def test_storage_can_be_freed_and_filled_again():
    """FSDP does this to the parameters that it gathers."""
    with DryRun():
        x = torch.empty(LARGE)
        x.untyped_storage().resize_(0)
        x.untyped_storage().resize_(4 * LARGE)
        y = x + 1

    assert y.shape == x.shape == (LARGE,)
