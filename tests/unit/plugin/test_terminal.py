"""The end of a session in the terminal: what each option adds to it."""

from __future__ import annotations

import pytest

TITLE = "=== DDP Scaling Benchmark ==="


@pytest.mark.parametrize("quiet", [(), ("-q",)], ids=["", "-q"])
def test_a_passing_session_shows_placement_and_summary_of_each_case_on_request(project, quiet):
    shown = project.run("--save-baseline", "--ddp-summary", *quiet)

    assert shown.ret == pytest.ExitCode.OK
    lines = shown.stdout.lines
    heading = next(i for i, line in enumerate(lines) if "each case of tiny" in line)
    (one, two) = (i for i, line in enumerate(lines) if line == TITLE)
    assert heading < one < two
    assert [line[:31] for line in lines[one + 1 : two] if line.startswith("[Rank")] == [
        "[Rank 0] CUDA_VISIBLE_DEVICES=u",
        "[Rank 1] CUDA_VISIBLE_DEVICES=u",
    ]


def test_without_the_option_a_passing_session_shows_no_summary_block(project):
    shown = project.run("--save-baseline")

    assert shown.ret == pytest.ExitCode.OK
    assert TITLE not in shown.stdout.str()
