"""Graphs, graph breaks and recompilations are counted, with the reason and the user's line."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn

from ddp_perf.core.work import MemoryCount, StepWork
from ddp_perf.torch_compat import CapturedMode, captures_under_modes
from ddp_perf.worker.counting.compilation import add_compilation
from tests.builders import make_structure

# Dynamo reads the gradient of a tensor between two graphs.
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")

RECORDS_REASONS = torch.__version__ >= "2.7"  # of compiling again


class Model(nn.Module):
    """A model whose forward also does ``what``."""

    def __init__(self, what=lambda x: x):
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)
        self.what = what

    def forward(self, x):
        return self.second(self.what(self.first(x).relu()))


def reads_a_value(x):
    return x * x.sum().item()


def branches(x):
    if x.sum() > 0:
        x = x + 1
    return x


def prints(x):
    print(end="")
    return x + 1


def prints_in_a_loop(x):
    for _ in range(3):
        x = x + 1
        print(end="")
    return x


class Counting(CapturedMode):
    """A mode that counts the operations that it sees."""

    operations = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.operations += 1
        return func(*args, **(kwargs or {}))


def compiled_step(model, sizes=(4,)):
    """Return a step of the compiled model, whose batch sizes go round ``sizes``."""
    model.forward = torch.compile(model.forward, backend="eager")
    batches = (torch.randn(size, 8) for size in itertools.cycle(sizes))
    return lambda: model(next(batches)).sum().backward()


def counted(step):
    """Return the graphs, and of each break and recompilation its function, text and reason."""
    work = add_compilation(make_work(), step)
    found = work.compilation
    sites = [(site.function.rpartition(".")[2], site.text) for site in work.sites]
    breaks, again = (
        [(*sites[one.site], one.reason) for one in kind]
        for kind in (found.breaks, found.recompilations)
    )
    return found.graphs, breaks, again


def make_work(*sites):
    """Return an empty step with these sites."""
    memory = dict.fromkeys(MemoryCount.__struct_fields__, 0)
    return StepWork(
        structure=make_structure(), sites=sites, operations=(), memory=MemoryCount(**memory)
    )


def test_a_clean_model_is_one_graph():
    assert counted(compiled_step(Model())) == (1, [], [])


def test_nothing_compiled_has_no_graph():
    assert counted(lambda: Model()(torch.randn(4, 8)).sum().backward()) == (0, [], [])


@pytest.mark.parametrize(
    ("what", "line", "reason"),
    [
        (reads_a_value, "return x * x.sum().item()", "Tensor.item"),
        (branches, "if x.sum() > 0:", "branching"),
        (prints, 'print(end="")', "print"),
    ],
)
def test_a_graph_break_names_its_line_and_reason(what, line, reason):
    graphs, breaks, _ = counted(compiled_step(Model(what)))

    assert graphs >= 2
    function, text, said = breaks[-1]
    assert (function, text) == (what.__name__, line)
    assert reason in said
    assert "\n" not in said


@pytest.mark.skipif(not captures_under_modes(), reason="this torch records the function only")
def test_a_break_in_a_loop_where_dynamo_gives_up_the_function_names_its_line():
    _, breaks, _ = counted(compiled_step(Model(prints_in_a_loop)))

    assert {text for _, text, _ in breaks} == {'print(end="")'}


def test_a_changing_size_recompiles():
    graphs, breaks, again = counted(compiled_step(Model(), sizes=(4, 5, 6)))

    assert (graphs, breaks) == (2, [])
    ((function, text, reason),) = again
    assert (function, text) == ("forward", "def forward(self, x):")
    known = "tensor 'x' size mismatch at index 0. expected 4, actual 5"
    assert reason == (known if RECORDS_REASONS else "unknown")


def test_a_library_model_recompiles_at_the_line_that_calls_it():
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU())

    _, _, ((_, text, _),) = counted(compiled_step(model, sizes=(4, 5)))

    assert text == "return lambda: model(next(batches)).sum().backward()"


def test_a_line_that_has_a_site_keeps_its_number():
    (site,) = add_compilation(make_work(), compiled_step(Model(prints))).sites
    work = add_compilation(make_work(site), compiled_step(Model(prints)))

    assert work.sites == (site,)
    assert {one.site for one in work.compilation.breaks} == {0}


def test_an_earlier_count_is_forgotten():
    counted(compiled_step(Model(prints)))

    assert counted(compiled_step(Model())) == (1, [], [])


@pytest.mark.skipif(not captures_under_modes(), reason="this torch skips frames under any mode")
def test_a_mode_that_is_active_sees_the_operations_of_the_graphs():
    with Counting() as mode:
        assert counted(compiled_step(Model(), sizes=(4, 5, 6))) == counted(
            compiled_step(Model(), sizes=(4, 5, 6))
        )
    assert mode.operations > 0
