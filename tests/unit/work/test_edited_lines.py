"""The lines that were edited since the stored counts, and that do more than before."""

from __future__ import annotations

import msgspec

from ddp_perf.core.work import CallCount
from ddp_perf.work.values import edited_lines
from tests.works import make_site, make_work


def line(text, number=1, **fields):
    return msgspec.structs.replace(make_site(number), text=text, **fields)


def texts(old, new):
    return [site.text for site in edited_lines(old, new)]


def calling(work, site, count=1):
    callers = (CallCount(site=len(work.sites), count=count),)
    return msgspec.structs.replace(work, sites=(*work.sites, site), callers=callers)


def test_a_line_whose_text_is_stored_was_not_edited():
    old = make_work((line("y = f(x)"), {"count": 1}))
    new = make_work((line("y = f(x)", 7), {"count": 2}))

    assert texts(old, new) == []


def test_an_edited_line_that_does_more_comes_before_one_that_does_a_little_more():
    old = make_work((line("y = f(x)", 1), {"flops": 10}), (line("z = g(y)", 2), {"flops": 10}))
    new = make_work((line("y = f(2 * x)", 1), {"flops": 20}), (line("z = g(-y)", 2), {"flops": 99}))

    assert texts(old, new) == ["z = g(-y)", "y = f(2 * x)"]


def test_a_renamed_line_does_as_much_as_before():
    old = make_work((line("y = f(x)"), {"count": 3, "read": 8}))
    new = make_work((line("out = f(x)"), {"count": 3, "read": 8}))

    assert texts(old, new) == []


def test_a_new_line_that_only_calls_is_the_edit_and_not_what_it_doubles():
    old = calling(make_work((line("y = f(x)"), {"flops": 10})), line("model(x)", 5))
    new = make_work((line("y = f(x)"), {"flops": 20}))
    new = calling(new, line("model(model(x))", 5), count=2)

    assert texts(old, new) == ["model(model(x))"]


def test_a_line_of_this_package_that_runs_anew_is_no_edit_unless_the_package_differs():
    """An optimizer with a `step` of its own is called by the Trainer, whose code is as before."""
    old = make_work((line("y = f(x)"), {"flops": 10}))
    trainer = make_site(92, text="self._scaler.step(", file="ddp_perf/worker/steps/trainer.py")
    new = calling(make_work((line("y = f(x)"), {"flops": 10})), trainer)

    assert edited_lines(old, new) == ()
    assert edited_lines(old, new, package_differs=True) == (trainer,)
    own = calling(make_work((line("y = g(x)", 3), {"flops": 20})), trainer)
    assert [site.text for site in edited_lines(old, own, package_differs=True)] == ["y = g(x)"]
