"""A count of a case with torch.compile names each graph break and recompilation of the user's."""

from __future__ import annotations

import pytest

from ddp_perf.core.work import CountRequest, StepWork


@pytest.fixture
def counted(launcher, request_of):
    """``counted(more, **suite)`` counts a case of workloads/compiled.py, by default compiled."""

    def count(more, **suite):
        launch = request_of("compiled:build", {"more": more}, **{"compile": True, **suite})
        work = launcher.count(CountRequest(case=launch.case, import_paths=launch.import_paths))
        assert isinstance(work, StepWork), str(work)
        return work

    return count


def named(work, found):
    return {(work.sites[one.site].file, work.sites[one.site].text) for one in found}


@pytest.mark.parametrize(
    ("suite", "graphs"),
    [
        pytest.param({"strategy": "ddp"}, 1, id="model"),
        pytest.param({"strategy": "fsdp", "fsdp": {"wrap": "block"}}, 2, id="two blocks"),
    ],
)
def test_a_clean_case_has_one_graph_for_each_compiled_module(counted, suite, graphs):
    found = counted("nothing", **suite).compilation

    assert (found.graphs, found.breaks) == (graphs, ())


@pytest.mark.parametrize(
    ("more", "line", "reason"),
    [
        ("read", "x = x + x.sum().item()", "Tensor.item()"),
        pytest.param("print", 'print(end="")', "print", marks=pytest.mark.slow),
    ],
)
def test_a_graph_break_names_the_users_line_and_the_reason(counted, more, line, reason):
    work = counted(more)

    assert named(work, work.compilation.breaks) == {("compiled.py", line)}
    assert work.compilation.graphs >= 2
    assert all(reason in one.reason for one in work.compilation.breaks)


@pytest.mark.slow
def test_batches_of_a_growing_size_recompile_the_users_function(counted):
    work = counted("growing batch")

    assert named(work, work.compilation.recompilations) == {
        ("compiled.py", "def forward(self, x):")
    }
    assert "size mismatch at index 0" in work.compilation.recompilations[0].reason


@pytest.mark.slow
def test_other_counts_of_a_compiled_case_are_those_of_the_eager_one(counted):
    compiled, eager = counted("nothing"), counted("nothing", compile=False)

    assert compiled.operations == eager.operations
    assert compiled.memory == eager.memory
    assert eager.compilation is None


def test_code_that_compiles_itself_is_captured_too(counted):
    assert counted("own", compile=False).compilation.graphs == 1
