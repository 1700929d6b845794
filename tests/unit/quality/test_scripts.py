"""The measurement of real scripts: what is edited, what is left out, and which times belong."""

from __future__ import annotations

import numpy as np
import pytest

from tests.quality import script_timing
from tests.quality.real_scripts import SCRIPTS
from tests.quality.script_sessions import Shown
from tests.quality.script_timing import Timed
from tests.quality.script_values import Edit, RealScript, Repository
from tests.quality.scripts import introduction, obstacle_of

EDIT = Edit(file="train.py", line="layers = 2", becomes="layers = 4")


def script(**changes):
    """Return a script of a repository that nobody has."""
    fields = {
        "name": "one",
        "repository": Repository(owner="ada", name="looms", commit="0" * 40, licence="MIT"),
        "folder": "examples",
        "script": "train.py",
        "args": ("--rows", "{batch_size}"),
        "batch_size": 8,
        "slower": EDIT,
        "causes": ("compute",),
    }
    return RealScript(**{**fields, **changes})


def shown(**changes):
    fields = {
        "case_id": "train-ws1-b8",
        "step_s": 0.01,
        "not_stored": "",
        "second": "PASS (step_time), SUSPECT (cpu_time)",
        "edited": "REGRESSION (step_time), REGRESSION (cpu_time)",
        "cause": "compute: forward +2.00 ms",
    }
    return Shown(**{**fields, **changes})


@pytest.fixture
def clones(tmp_path):
    """A folder with a clone of the repository."""
    folder = tmp_path / "clones" / "looms" / "examples"
    folder.mkdir(parents=True)
    (folder / "train.py").write_text("layers = 2\ndevice = 'cuda'\n")
    return tmp_path / "clones"


def test_the_copy_is_edited_and_has_data_and_the_clone_stays(clones, tmp_path):
    wanted = script(
        for_cpu=(Edit(file="train.py", line="'cuda'", becomes="'cpu'"),),
        data=lambda folder: (folder / "tokens.bin").touch(),
    )
    copy = tmp_path / "copy"

    wanted.place(clones, copy)
    wanted.slower.make(copy)

    assert (copy / "train.py").read_text() == "layers = 4\ndevice = 'cpu'\n"
    assert (copy / "tokens.bin").exists()
    assert (clones / "looms/examples/train.py").read_text() == "layers = 2\ndevice = 'cuda'\n"


@pytest.mark.parametrize("text", ["layers = 3\n", "layers = 2\nlayers = 2\n"])
def test_an_edit_of_another_version_of_the_file_is_refused(tmp_path, text):
    (tmp_path / "train.py").write_text(text)

    with pytest.raises(SystemExit, match="exactly once: layers = 2"):
        EDIT.make(tmp_path)


def test_a_missing_clone_and_a_missing_package_are_named_with_the_remedy(clones, tmp_path):
    assert obstacle_of(script(), clones) is None
    assert obstacle_of(script(packages=("no_such_one",)), clones) == "pip install no_such_one"
    assert obstacle_of(script(), tmp_path / "none") == (
        f"there is no {tmp_path}/none/looms/examples/train.py;"
        f" git clone https://github.com/ada/looms {tmp_path}/none/looms"
    )


def test_the_introduction_says_whether_the_script_is_as_it_was():
    origin = "one: examples/train.py of https://github.com/ada/looms at 000000000000 (MIT); "

    assert introduction(script()) == origin + "unmodified"
    assert introduction(script(for_cpu=(EDIT, EDIT))) == (
        origin + "2 lines edited, since it insists on GPUs"
    )


def test_an_environment_that_names_the_ranks_needs_a_suite_for_each_number():
    (suite,) = script(env={"A": "b"}).suites().values()
    each = script(env={"DEVICES": "{world_size}"}).suites()

    assert (suite["suite"], suite["world_sizes"], suite["env"]) == ("one", [1, 2], {"A": "b"})
    assert [(name, one["world_sizes"], one["env"]) for name, one in each.items()] == [
        ("one_1", [1], {"DEVICES": "1"}),
        ("one_2", [2], {"DEVICES": "2"}),
    ]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({}, None),
        ({"not_stored": "step_time: disturbed"}, "not stored: step_time: disturbed"),
        ({"second": "REGRESSION (cpu_time)"}, "second session is red"),
        ({"edited": "SUSPECT (step_time)"}, "the edit is not red"),
        ({"cause": "data: later"}, "the cause is not compute"),
        ({"cause": "–"}, "the cause is not compute"),
    ],
)
def test_what_is_not_as_it_must_be_is_named(changes, problem):
    problems = shown(**changes).problems(script())

    assert len(problems) == (problem is not None)
    assert all(problem in one for one in problems)


def test_each_real_script_is_named_once_and_states_where_it_is_from():
    assert len({one.name for one in SCRIPTS}) == len(SCRIPTS)
    assert all(len(one.repository.commit) == 40 for one in SCRIPTS)
    assert all(one.slower.line != one.slower.becomes for one in SCRIPTS)


def test_the_timed_steps_are_found_among_all_steps():
    stamped = np.array([0.09, 0.02, 0.03, 0.01, 0.05, 0.04])

    # The first of these intervals is between the steps 0 and 1, so the third ends at step 3.
    assert script_timing.place_of([0.0301, 0.0102, 0.0499], stamped) == 3


def timed(**changes):
    """Return the times of the steps 10 to 13. With the step 11 a turn begins."""
    fields = {
        "first": 10,
        "ours_s": (0.030, 9.0, 0.010, 0.050),
        "watched_s": (0.030, 9.0, 0.010, 0.050),
        "alone_s": (0.020, 8.0, 0.010, 0.030),
    }
    return Timed(**{**fields, **changes})


def test_the_times_of_the_script_are_those_of_the_same_steps():
    # The stopwatch waits at the end of the step 10, after the end of the optimizer.
    lines = ["iter 10: time 999.00ms", "eval", "iter 12: time 5.00ms", "iter 19: time 900.00ms"]
    printed = script_timing.printed_times(lines, r"iter (?P<step>\d+): time (?P<ms>[\d.]+)ms", 0)

    assert timed(printed_s=printed).by_script() == pytest.approx(2.0)


def test_a_step_that_contains_the_turn_of_the_other_side_is_left_out():
    assert timed(watched_s=(0.015, 9.9, 0.005, 0.025)).by_stopwatch() == pytest.approx(2.0)


def test_the_effect_is_the_median_ratio_of_turns():
    # The turns 0, 1 and 2 have the ratios 1.5, 2 and 4.
    step_s = [0.03] * 10 + [9.0] + [0.02] * 10 + [9.0] + [0.04] * 10
    alone_s = [0.02] * 10 + [9.0] + [0.01] * 10 + [9.0] + [0.01] * 10
    found = timed(first=1, ours_s=step_s, watched_s=step_s, alone_s=alone_s)

    assert found.effect() == pytest.approx(2.0)


def test_a_line_may_have_the_time_of_the_step_before():
    pattern = r"dt (?P<ms>[\d.]+)ms; iter (?P<step>\d+)"

    assert script_timing.printed_times(["dt 7.5ms; iter 10"], pattern, 1) == {9: 0.0075}


def test_a_script_that_prints_no_time_of_these_steps_is_refused():
    with pytest.raises(SystemExit, match="printed no time"):
        timed(printed_s={9: 0.1}).by_script()


def test_ratios_have_an_interval_where_there_are_several():
    assert script_timing.ratio_text([1.01]) == "1.0100 (1 launch)"
    assert script_timing.ratio_text([1.0, 1.02, 0.98]).startswith("0.9999 (95 % 0.95")
