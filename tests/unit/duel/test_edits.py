"""A tree that is edited while it is measured."""

from __future__ import annotations

import pytest

from ddp_perf.duel.run import WatchedTree
from ddp_perf.duel.values import Side, SideCase
from ddp_perf.errors import SideError
from tests.builders import make_case
from tests.unit.duel.played_sides import make_prepared
from tests.unit.duel.script_cases import make_script_case

CASE = make_case(workload="model:build")


@pytest.fixture
def tree(tmp_path):
    """A workload that imports a module, and a file that it does not import."""
    for side in ("old", "tree"):
        (tmp_path / side).mkdir()
        (tmp_path / side / "model.py").write_text("import layers\n")
        (tmp_path / side / "layers.py").write_text("WIDTH = 1\n")
        (tmp_path / side / "other.py").write_text("")
    return tmp_path / "tree"


def watched(a, b, case=CASE):
    sides = [
        make_prepared(name, root, side=Side(name=name, spec=kind, kind=kind, label="the " + kind))
        for name, kind, root in (("A", *a), ("B", *b))
    ]
    return WatchedTree(sides[0], sides[1], [SideCase(a=case, b=case)])


def test_an_edit_of_what_the_workload_imports_ends_the_duel(tree):
    sides = watched(("revision", tree.parent / "old"), ("tree", tree))
    (tree / "other.py").write_text("edited = True\n")
    (tree / "layers.py").touch()
    sides.check()

    (tree / "layers.py").write_text("WIDTH = 2\n")

    with pytest.raises(SideError, match=r"side B \(the tree\): .*layers.py was edited"):
        sides.check()


def test_a_checkout_and_a_tree_on_both_sides_are_not_watched(tree):
    both = watched(("env", tree), ("tree", tree))
    revisions = watched(("revision", tree.parent / "old"), ("revision", tree))

    (tree / "layers.py").write_text("WIDTH = 2\n")

    both.check()
    revisions.check()


@pytest.mark.parametrize("edited", ["model.py", "layers.py"])
def test_an_edit_of_a_script_and_of_what_it_imports_ends_the_duel(tree, edited):
    case = make_script_case(script="model.py")
    sides = watched(("revision", tree.parent / "old"), ("tree", tree), case)
    (tree / "other.py").write_text("edited = True\n")
    sides.check()

    (tree / edited).write_text("import layers, os\n")

    with pytest.raises(SideError, match=f"{edited} was edited"):
        sides.check()
