"""A revision runs its own script, or its case is not compared."""

from __future__ import annotations

import pytest

from ddp_perf.duel.sides.preparing import foreign_script
from ddp_perf.duel.values import Side
from tests.builders import make_case
from tests.unit.duel.played_sides import make_prepared
from tests.unit.duel.script_cases import make_script_case

MAIN = Side(name="A", spec="main", kind="revision", label="main (3f2a1c9)")


@pytest.fixture
def revision(tmp_path):
    """A checkout without files."""
    root = tmp_path / "checkout"
    root.mkdir()
    return make_prepared("A", root, side=MAIN, command=None)


def foreign(script, side):
    return foreign_script(make_script_case(script=script), side)


def test_a_path_from_the_root_on_is_the_revisions_own(revision):
    assert foreign("jobs/train.py", revision) is None


def test_an_absolute_path_would_be_the_same_file_in_every_revision(revision, tmp_path):
    path = str(tmp_path / "train.py")

    assert foreign(path, revision) == (
        f"runs {path} whatever the revision; give the path of the script from the root of the"
        " project on"
    )
    assert foreign(path, make_prepared("B", tmp_path)) is None


def test_a_module_that_only_the_users_tree_has_is_missing(revision, tmp_path, monkeypatch):
    package = tmp_path / "tree" / "recipes"
    package.mkdir(parents=True)
    (package / "train.py").touch()
    monkeypatch.syspath_prepend(package.parent)

    assert foreign("recipes.train", revision) == "has no module recipes.train in main (3f2a1c9)"

    (revision.root / "recipes").mkdir()
    (revision.root / "recipes" / "train.py").touch()
    assert foreign("recipes.train", revision) is None


def test_an_installed_module_is_the_same_in_all_revisions(revision):
    assert foreign("torch.distributed.run", revision) is None
    assert foreign("json.tool", revision) is None


def test_a_case_without_a_script_has_none_that_is_foreign(revision):
    assert foreign_script(make_case(), revision) is None
