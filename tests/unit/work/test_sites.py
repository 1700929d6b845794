"""A line that was renamed, edited or moved is the same place."""

from __future__ import annotations

import pytest

from ddp_perf.work.changes import work_changes
from ddp_perf.work.values import match_sites
from tests.works import make_site, make_work

CLONE = {"name": "aten.clone"}


def places(old, new):
    (change,) = work_changes(old, new)
    return [place.site for place in change.places]


OLD = make_site(10, "y = self.norm(x)", module="layers.*")
RENAMED = {
    "moved to another line": make_site(90, OLD.text, module=OLD.module),
    "a variable": make_site(10, "z = self.norm(x)", module=OLD.module),
    "the function": make_site(10, OLD.text, function="Layer.call", module=OLD.module),
    "the file": make_site(10, OLD.text, file="layers.py", module=OLD.module),
    "the module": make_site(10, OLD.text, module="blocks.*"),
    "all but the file": make_site(11, "z = self.ln(z)", function="Layer.call", module="blocks.*"),
}


@pytest.mark.parametrize("what", RENAMED)
def test_a_renamed_site_is_not_named_beside_the_one_that_was_added(what):
    added = make_site(50, "x = x.clone()", function="Model.forward")
    new = make_work((RENAMED[what], CLONE), (added, CLONE))
    assert places(make_work((OLD, CLONE)), new) == [added]


def test_an_edited_line_with_more_operations_is_named():
    edited = make_site(10, "y = self.norm(x.clone())", module="layers.*")
    norm = {"name": "aten.native_layer_norm"}
    old, new = make_work((OLD, norm)), make_work((edited, norm), (edited, CLONE))
    assert places(old, new) == [edited]


def test_of_equal_lines_the_last_one_is_named():
    again = make_site(11, OLD.text, module=OLD.module)
    old, new = make_work((OLD, CLONE)), make_work((OLD, CLONE), (again, CLONE))
    assert places(old, new) == [again]


def test_a_removed_line_is_named_as_it_was():
    gone = make_site(50, "x = x.clone()")
    old, new = make_work((OLD, CLONE), (gone, CLONE)), make_work((OLD, CLONE))
    assert places(old, new) == [gone]


def test_the_text_of_a_line_counts_more_than_its_number():
    first, second = make_site(10, "a = f(x)"), make_site(11, "b = g(x)")
    work = make_work((first, {"name": "aten.relu"}), (second, {"name": "aten.tanh"}))
    swapped = make_work(
        (make_site(11, "a = f(x)", function="g"), {"name": "aten.relu"}),
        (make_site(10, "b = g(x)", function="g"), {"name": "aten.tanh"}),
    )
    matched = match_sites(work, swapped)
    assert [site.text for site in matched.old] == [site.text for site in work.sites]
    assert [site.function for site in matched.old] == ["g", "g"]
