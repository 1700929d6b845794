"""The end of a session in the terminal: what each option adds to it."""

from __future__ import annotations

import pytest

TITLE = "=== DDP Scaling Benchmark ==="


def test_a_session_shows_placement_and_summary_of_each_case_if_it_is_very_verbose(project):
    shown = project.run("--save-baseline", "-vv")

    assert shown.ret == pytest.ExitCode.OK
    lines = shown.stdout.lines
    heading = next(i for i, line in enumerate(lines) if "each case of tiny" in line)
    (one, two) = (i for i, line in enumerate(lines) if line == TITLE)
    assert heading < one < two
    assert [line[:31] for line in lines[one + 1 : two] if line.startswith("[Rank")] == [
        "[Rank 0] CUDA_VISIBLE_DEVICES=u",
        "[Rank 1] CUDA_VISIBLE_DEVICES=u",
    ]


@pytest.mark.parametrize("verbose", [(), ("-q",), ("-v",)], ids=["", "-q", "-v"])
def test_a_passing_session_that_is_less_verbose_has_no_summary_block(project, verbose):
    shown = project.run("--save-baseline", *verbose)

    assert shown.ret == pytest.ExitCode.OK
    assert TITLE not in shown.stdout.str()


def test_the_first_launch_of_each_case_keeps_what_its_ranks_print(project):
    project.store()

    shown = project.run("--ddp-env=NCCL_DEBUG=INFO")

    assert shown.ret == pytest.ExitCode.OK  # NCCL_DEBUG is no other work
    kept = [request for request in project.requests() if request.output is not None]
    ids = [request.case.id for request in kept]
    assert ids == ["mlp-none-fp32-ws1-b16", "mlp-ddp-fp32-ws2-b16"]
    folder = project.path / "artifacts" / "output" / "tiny"
    assert [request.output for request in kept] == [str(folder / id_) for id_ in ids]
    assert {request.round for request in kept} == {0}
    assert {request.case.env["NCCL_DEBUG"] for request in project.requests()} == {"INFO"}


def test_a_verbose_session_has_the_terms_of_a_step_and_the_figures_of_amdahls_law(project):
    """Two ranks take 12 ms for 10 ms of one: 20 % of the work is serial."""
    shown = " ".join(project.run("-v").stdout.str().split())

    assert "Amdahl's law, mlp-ddp-fp32-b16: serial fraction 20 %" in shown
    assert "2 ranks: speed-up 1.67 observed, 1.67 by the law, 2 ideal (2 points" in shown


def test_a_session_shows_one_table_and_no_law(project):
    project.store()

    lines = project.run().stdout.lines

    assert [line.split()[-1] for line in lines if line.startswith("case ")] == ["detects"]
    assert not any(line.startswith(("Amdahl", "ms a step")) for line in lines)
