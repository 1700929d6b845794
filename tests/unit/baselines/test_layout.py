"""A file states once what sessions and launches share, and loses nothing by it."""

from __future__ import annotations

import difflib
import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddp_perf.baselines.save import NewSession, merge
from ddp_perf.baselines.store import from_file, to_file
from ddp_perf.core.verdict import Outcome
from tests.builders import (
    make_baseline,
    make_case,
    make_case_baseline,
    make_environment,
    make_session,
    make_structure,
)

KEY = "cpu-some-2c-host"
CASES = [make_case(), make_case(id="other")]


def session_of(day, **environment):
    session = make_session([0.01, 0.011], day=day)
    return msgspec.structs.replace(session, environment=make_environment(**environment))


def baseline_of(*sessions):
    return make_baseline({case.id: make_case_baseline(case, *sessions) for case in CASES})


def written(stored, baseline):
    return json.loads(stored(baseline).read_bytes())


def lines_of(path):
    """The lines of a file; JSON puts a comma behind a line that was the last one."""
    return [line.rstrip(",") for line in path.read_text().splitlines()]


def test_sessions_share_an_environment_and_have_their_own_commit(store, stored):
    baseline = baseline_of(session_of(1, commit="a"), session_of(2, commit="b"))

    found = written(stored, baseline)

    (environment,) = found["environments"].values()
    assert environment["torch"] == "2.13.0"
    assert "commit" not in environment
    for case in found["cases"].values():
        assert [session["commit"] for session in case["sessions"]] == ["a", "b"]
    assert store.load(KEY) == baseline


def test_another_environment_is_another_entry(store, stored):
    baseline = baseline_of(session_of(1), session_of(2, variables={"NCCL_ALGO": "Ring"}))

    found = written(stored, baseline)

    assert len(found["environments"]) == 2
    for case in found["cases"].values():
        named = [session["environment"] for session in case["sessions"]]
        assert set(named) == found["environments"].keys()
    assert store.load(KEY) == baseline


def test_an_environment_has_the_same_name_whichever_sessions_are_stored(stored):
    both = written(stored, baseline_of(session_of(1, torch="1"), session_of(2, torch="2")))
    one = written(stored, baseline_of(session_of(2, torch="2")))

    assert one["environments"].items() < both["environments"].items()


@pytest.mark.parametrize(
    "launches",
    [
        ({"step_time": 0.01, "energy": 3.0}, {"step_time": 0.02}),
        ({"step_time": 0.01}, {"step_time": 0.02, "energy": 3.0}),
    ],
    ids=["of the second", "of the first"],
)
def test_a_launch_may_lack_a_figure_and_all_terms(store, stored, launches):
    session = msgspec.structs.replace(
        session_of(1),
        launches=launches,
        terms=({}, {"forward": 0.001}),
        overhead_s=0.5,
        verdicts={"step_time": Outcome.REGRESSION},
    )
    baseline = baseline_of(session)

    stored(baseline)

    assert store.load(KEY) == baseline


@pytest.mark.parametrize("software", ["2.13.0", "2.14.0"], ids=["as before", "upgraded"])
def test_the_diff_of_an_append_has_the_lines_of_the_new_session_only(stored, software):
    before = baseline_of(session_of(1), session_of(2))
    new = [
        NewSession(
            case=case,
            session=session_of(3, torch=software, commit="a new one"),
            structure=make_structure(),
        )
        for case in CASES
    ]
    old = lines_of(stored(before))

    lines = lines_of(stored(merge(before, new, mode="append", reason=None)))

    diff = list(difflib.unified_diff(old, lines, n=0))[2:]  # without the names of the files
    assert [line for line in diff if line.startswith("-")] == []
    of_a_session = 14
    environments = int(software != "2.13.0")
    assert len(lines) - len(old) == of_a_session * len(CASES) + environments


def test_sessions_have_their_own_tree_and_share_their_packages(store, stored):
    packages = {"numpy": "2.1.0", "torch": "2.13.0"}
    baseline = baseline_of(
        session_of(1, commit="a", tree="t1", packages=packages),
        session_of(2, commit="a", tree="t2", packages=packages),
        session_of(3, commit="b", tree="t2", packages={**packages, "numpy": "2.2.0"}),
        session_of(4, commit="b", packages=packages),
    )

    found = written(stored, baseline)

    assert len(found["environments"]) == 2
    assert all("tree" not in environment for environment in found["environments"].values())
    for case in found["cases"].values():
        trees = [session.get("tree") for session in case["sessions"]]
        assert trees == ["t1", "t2", "t2", None]
    assert store.load(KEY) == baseline


def test_a_file_without_trees_and_packages_is_read_and_stays_as_it_is(store, stored):
    baseline = baseline_of(session_of(1, commit="a"), session_of(2, commit="b"))
    path = stored(baseline)
    text = path.read_text(encoding="utf-8")

    loaded = store.load(KEY)
    store.update(KEY, lambda current: current)

    assert "tree" not in text
    assert "packages" not in text
    assert path.read_text(encoding="utf-8") == text
    for session in loaded.cases[CASES[0].id].sessions:
        assert (session.environment.tree, session.environment.packages) == (None, {})


@given(
    st.lists(
        st.tuples(
            st.sampled_from([None, "a", "b"]),
            st.sampled_from([None, "t1", "t2"]),
            st.dictionaries(st.sampled_from(["numpy", "torch"]), st.sampled_from(["1", "2"])),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_any_codes_of_sessions_come_back(rows):
    sessions = [
        session_of(day, commit=commit, tree=tree, packages=packages)
        for day, (commit, tree, packages) in enumerate(rows, start=1)
    ]
    baseline = baseline_of(*sessions)

    assert from_file(to_file(baseline)) == baseline
