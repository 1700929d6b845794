"""A case is left out only if nothing that it reads has changed."""

from __future__ import annotations

import pytest

from ddp_perf.duel.touched import CaseSources, touched_cases

OURS = ("ours", "one")
BUILT_IN = ("quick", "two")
SCRIPT = ("mine", "three")


def sources(unknown=None):
    imported = frozenset({"model.py", "layers/norm.py", "tests/shared.py"})
    return {
        OURS: CaseSources(
            suite="bench_configs/ours.yaml",
            workload="model:build",
            suites=frozenset({"bench_configs/quick.yaml", "bench_configs/another.yaml"}),
            imported=imported,
            unknown=unknown,
        ),
        BUILT_IN: CaseSources(
            suite="bench_configs/quick.yaml",
            workload="mlp",
            suites=frozenset({"bench_configs/ours.yaml", "bench_configs/another.yaml"}),
        ),
    }


def touched_by(*changed, unknown=None):
    return touched_cases(sources(unknown), changed).touched


@pytest.mark.parametrize(
    ("file", "reason"),
    [
        ("model.py", "model.py, which its workload imports"),
        ("layers/norm.py", "layers/norm.py, which its workload imports"),
        ("tests/shared.py", "tests/shared.py, which its workload imports"),
        ("bench_configs/ours.yaml", "bench_configs/ours.yaml has its suite"),
    ],
)
def test_a_file_that_a_case_reads_touches_it_alone(file, reason):
    assert touched_by(file) == {OURS: reason}


@pytest.mark.parametrize(
    "file",
    [
        *("requirements.txt", "ci/requirements.txt", "uv.lock", "pyproject.toml", "pytest.ini"),
        *("ddp_perf/worker/process.py", "libs/ddp_perf/core/case.py", "conftest.py"),
        *("data/vocabulary.txt", "csrc/kernel.cu", "model_settings.json", "Dockerfile"),
        *("bench_configs/model.json", "bench_configs/model.yaml"),
    ],
)
def test_what_any_case_may_depend_on_touches_every_case(file):
    assert touched_by(file) == dict.fromkeys((OURS, BUILT_IN), f"{file} may change every case")


@pytest.mark.parametrize(
    "file",
    [
        *("README.md", "docs/guide/figure.html", "docs/conf.py", "logo.png", "LICENSE"),
        *("tests/test_model.py", "tests/conftest.py", "test_other.py", "notes.md"),
        *(".github/workflows/pr.yml", "baselines/work/2.13/ours.json", ".gitignore"),
        *("tests/__pycache__/test_a.cpython-311.pyc", ".pytest_cache/v/cache/lastfailed"),
        *("other_model.py", "bench_configs/another.yaml", "page/README.md"),
    ],
)
def test_what_no_case_reads_touches_none(file):
    assert touched_by(file) == {}


@pytest.mark.parametrize(
    "file",
    [
        *("tests/data/x.json", "docs/shapes.yaml", "ci/model.json", "ci/pr", "tests/notes.md"),
        *("corpus/docs/page.md", "images/1.jpg", "texts/a.rst"),
    ],
)
def test_what_may_be_data_touches_each_case_with_code_of_the_user(file):
    assert touched_by(file) == {OURS: f"{file} may be data, and model:build may read it"}


@pytest.mark.parametrize("file", ["other_model.py", "docs/conf.py", "tests/shapes.py"])
def test_any_python_file_touches_a_case_whose_imports_are_not_known(file):
    unknown = "model.py:3 imports a module whose name is computed"

    assert touched_by(file, unknown=unknown) == {OURS: f"{file} changed, and {unknown}"}
    assert touched_by("README.md", unknown=unknown) == {}


def test_the_certain_reason_is_the_one_that_is_given():
    assert touched_by("pyproject.toml", "model.py")[OURS] == "model.py, which its workload imports"


def test_a_case_that_is_left_out_has_a_reason_too():
    assert touched_cases(sources(), ["README.md"]).left_out == {
        OURS: "no changed file can touch it: none is its suite file, and model:build imports none"
        " of them",
        BUILT_IN: "no changed file can touch it: none is its suite file",
    }
    assert set(touched_cases(sources(), []).left_out.values()) == {"nothing changed"}


def test_every_case_is_either_touched_or_left_out():
    found = touched_cases(sources(), ["model.py"])

    assert {*found.touched} == {OURS}
    assert {*found.left_out} == {BUILT_IN}


@pytest.mark.parametrize(
    ("file", "is_read"),
    [
        *(("train.py", True), ("layers/norm.py", True), ("layers/other.py", False)),
        *(("configs/small.py", True), ("configs/large.py", False)),
        *(("recipes/a/b.py", True), ("recipes.py", False), ("docs/note.md", True)),
    ],
)
def test_a_script_reads_itself_its_imports_and_what_its_arguments_name(file, is_read):
    case = CaseSources(
        suite="bench_configs/mine.yaml",
        workload="train.py",
        is_script=True,
        imported=frozenset({"train.py", "layers/norm.py"}),
        named=frozenset({"configs/small.py", "recipes", "docs/note.md", "64"}),
    )

    found = touched_cases({SCRIPT: case}, [file])

    assert found.touched == ({SCRIPT: f"{file}, which its script reads"} if is_read else {})
    why_not = (
        "no changed file can touch it: none is its suite file, and train.py reads none of them"
    )
    assert found.left_out == ({} if is_read else {SCRIPT: why_not})
