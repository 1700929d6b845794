"""Which suspicious cases fit into the time."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddp_perf.duel.run import FIRST_LOOK, MARGIN
from ddp_perf.settle.references import SERVERS_S, Changed, Reference, Suspect, fitting
from ddp_perf.system.git import CodeState
from tests.builders import make_case, make_environment


def suspect(name, *, launch_s=1.0, tree="a"):
    reference = Reference(
        date="2026-01-01T00:00:00+00:00",
        state=CodeState(commit="0" * 40, tree=tree),
        environment=make_environment(),
        patch=Path("none.patch"),
    )
    return Suspect(
        case=make_case(id=name),
        suspicion=0.5,
        launch_s=launch_s,
        references=(reference,),
        changed=Changed(code=("model.py",), software=(), machine=()),
    )


def room_for(launches_s):
    """Return the time for the first look at cases whose launches take so long together."""
    return SERVERS_S + MARGIN * 2 * FIRST_LOOK * launches_s + 0.1


@pytest.mark.parametrize(
    ("waiting", "needed_s", "fit"),
    [
        ([suspect("one"), suspect("two")], 2, ["one", "two"]),
        ([suspect("one"), suspect("two")], 1, ["one"]),
        ([suspect("long", launch_s=9.0), suspect("two"), suspect("three")], 2, ["two", "three"]),
        ([suspect("one"), suspect("long", launch_s=9.0), suspect("three")], 2, ["one", "three"]),
        ([suspect("one"), suspect("other", tree="b"), suspect("three")], 3, ["one", "three"]),
        ([suspect("long", launch_s=9.0), suspect("two", tree="b")], 2, ["two"]),
        ([suspect("long", launch_s=9.0)], 2, []),
        ([], 2, []),
    ],
)
def test_the_first_ones_of_one_code_that_have_room_fit(waiting, needed_s, fit):
    assert [one.case.id for one in fitting(waiting, room_for(needed_s))] == fit
