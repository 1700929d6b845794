"""The files that a workload may import are found in its source, without running it."""

from __future__ import annotations

import pytest

from ddp_perf.duel.touched import files_of_script, imported_files
from tests.unit.duel.script_cases import make_script_case


@pytest.fixture
def project(tmp_path):
    def project(**files):
        for name, text in files.items():
            path = tmp_path / f"{name.replace('__in', '_@in').replace('__', '/')}.py".replace(
                "_@in", "__in"
            )
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
        return tmp_path

    return project


def found(root, module="model", paths=None):
    """Return the existing files that are imported, and what is unknown."""
    imported = imported_files(module, paths or [str(root)], root)
    files = {file.relative_to(root).as_posix() for file in imported.files if file.exists()}
    return files, imported.unknown


@pytest.mark.parametrize(
    "line",
    [
        "import layers",
        "import layers as l, os",
        "from layers import Norm",
        "from . import layers",
        "from .layers import Norm",
        "def build():\n    import layers",
        "try:\n    import layers\nexcept ImportError:\n    layers = None",
        "import importlib\nimportlib.import_module('layers')",
        "if TYPE_CHECKING:\n    import layers",
    ],
)
def test_an_import_is_followed_wherever_it_is(project, line):
    root = project(model=line, layers="import deeper", deeper="", other="")

    assert found(root) == ({"model.py", "layers.py", "deeper.py"}, None)


def test_the_packages_around_a_module_are_imported_with_it(project):
    files = {
        "ours/__init__.py": "",
        "ours/models/__init__.py": "from ours import settings",
        "ours/models/net.py": "from ..blocks.norm import Norm",
        "ours/settings.py": "",
        "ours/blocks/__init__.py": "",
        "ours/blocks/norm.py": "",
        "ours/blocks/unused.py": "",
    }
    root = project()
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, "utf-8")

    assert found(root, "ours.models.net") == ({*files} - {"ours/blocks/unused.py"}, None)


def test_a_star_takes_every_module_of_a_package(project):
    root = project(model="from parts import *", parts__a="import deeper", parts__b="", deeper="")

    assert found(root)[0] == {"model.py", "parts/a.py", "parts/b.py", "deeper.py"}


def test_a_directory_of_the_import_path_is_searched(project):
    root = project(src__model="import layers", src__layers="")

    assert found(root, paths=[str(root), str(root / "src")])[0] == {"src/model.py", "src/layers.py"}


def test_a_module_that_is_not_there_may_be_added_or_was_removed(project):
    root = project(model="try:\n    import fast\nexcept ImportError:\n    pass\nimport random")

    files = imported_files("model", [str(root)], root).files
    assert root / "fast.py" in files
    assert root / "random.py" in files  # it would hide that of Python


def test_installed_packages_and_ddp_perf_are_no_files_of_the_project(project):
    root = project(model="import torch, numpy\nfrom ddp_perf.workloads.workload import Workload")

    assert found(root) == ({"model.py"}, None)


@pytest.mark.parametrize(
    ("line", "unknown"),
    [
        ("importlib.import_module(f'models.{name}')", "imports a module whose name is computed"),
        ("__import__(name)", "imports a module whose name is computed"),
        ("sys.path.insert(0, '..')", "uses sys.path"),
        ("exec(text)", "calls exec"),
        ("runpy.run_path('setup.py')", "calls run_path"),
    ],
)
def test_what_the_source_leaves_open_is_named_with_its_line(project, line, unknown):
    root = project(model="import layers", layers=f"import importlib\n\n{line}")

    assert found(root)[1] == f"layers.py:3 {unknown}"


def test_a_file_that_cannot_be_parsed_leaves_its_imports_open(project):
    root = project(model="import layers", layers="def")

    assert found(root)[1] == "layers.py cannot be read"


def test_a_workload_without_a_source_file_leaves_all_open(project):
    assert found(project(), "fast_model")[1] == "fast_model is not a source file of the project"


def of_script(root, paths=None, **suite):
    """As ``found``, of a script."""
    run = make_script_case(**suite).script
    imported = files_of_script(run, paths or [str(root)], root)
    files = {file.relative_to(root).as_posix() for file in imported.files if file.exists()}
    return files, imported.unknown


def test_a_script_imports_from_its_own_folder_before_the_root(project):
    root = project(
        jobs__train="import layers\nfrom shared import loss",
        jobs__layers="",
        shared="import deeper",
        deeper="",
        other="",
    )

    files, unknown = of_script(root, script="jobs/train.py")

    assert (files, unknown) == (
        {"jobs/train.py", "jobs/layers.py", "shared.py", "deeper.py"},
        None,
    )


def test_a_script_is_searched_in_all_import_paths_and_the_first_one_counts(project):
    root = project(src__train="import one", src__one="", other__train="import two", other__two="")
    paths = [str(root), str(root / "src"), str(root / "other")]

    assert of_script(root, paths)[0] == {"src/train.py", "src/one.py"}


def test_a_module_runs_as_a_script_with_the_main_file_of_a_package(project):
    root = project(ours__train="from . import net", ours__net="")
    (root / "ours" / "__init__.py").touch()
    (root / "ours" / "__main__.py").write_text("from ours import train\n")
    everything = {f"ours/{name}.py" for name in ("__init__", "train", "net")}

    assert of_script(root, script="ours.train") == (everything, None)
    assert of_script(root, script="ours") == ({*everything, "ours/__main__.py"}, None)


def test_the_module_of_the_function_that_ends_a_step_counts(project):
    root = project(train="", loop="import inner", inner="")

    assert of_script(root, steps_by="loop:Loop.step")[0] == {"train.py", "loop.py", "inner.py"}


@pytest.mark.parametrize("text", ["exec(open('settings.py').read())", "import sys\nsys.path = []"])
def test_a_script_may_leave_open_what_it_reads(project, text):
    _, unknown = of_script(project(train=text))

    assert unknown.startswith("train.py:")


@pytest.mark.parametrize("script", ["/elsewhere/train.py", "gone.train"])
def test_a_script_that_is_no_file_of_the_project_is_unknown(project, script):
    files, unknown = of_script(project(train=""), script=script)

    assert files == set()
    assert unknown == f"{script} is not a source file of the project"


def external(root, module="model", paths=None):
    return imported_files(module, paths or [str(root)], root).external


def test_modules_from_elsewhere_are_named_by_their_top_wherever_they_are_imported(project):
    root = project(
        model="import layers, numpy.linalg as l\nfrom torch.nn import Linear\nimport ddp_perf.core",
        layers="def late():\n    from scipy import stats\n    importlib.import_module('json.tool')",
        unused="import pandas",
    )

    assert external(root) == {"numpy", "torch", "scipy", "json"}


def test_own_modules_are_not_from_elsewhere(project):
    root = project(
        model="from . import layers\nimport ours.deep\nfrom ours import deep\nimport space.deep",
        layers="",
        ours____init__="",
        ours__deep="",
        space__deep="",
    )

    assert external(root) == frozenset()


def test_a_package_of_the_path_hides_none_from_elsewhere(project):
    """A module that is missing here may be a file that is added, and a package as well."""
    root = project(src__model="import other, numpy", src__other="")

    assert external(root, paths=[str(root), str(root / "src")]) == {"numpy"}
