"""The files of structures and counts: lossless, small, easy to review, and read strictly."""

from __future__ import annotations

import json

import filelock
import jsonschema
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddp_perf.baselines import writing as writing_module
from ddp_perf.baselines.work import (
    AcceptedWork,
    StoredWork,
    WorkBaseline,
    WorkStore,
    canonical,
    torch_minor,
    work_from_file,
    work_schema,
    work_to_file,
)
from ddp_perf.baselines.writing import format_json
from ddp_perf.errors import BaselineError
from tests.builders import make_case, make_cases, make_stored_structure, make_structure
from tests.works import make_collective, make_site, make_step_work, make_work, step_works

TORCH = "2.13.0+cpu"
CASE = make_case()
NORM, CLONE = make_site(10, "x = self.norm(x)"), make_site(42)
USUAL = canonical(
    make_work((NORM, {"name": "aten.native_layer_norm"}), collectives=(make_collective(),))
)


def holding(*works, torch="2.13"):
    cases = {
        f"case-{number}": StoredWork(options={**CASE.work(), "batch_size": number}, step=work)
        for number, work in enumerate(works)
    }
    return WorkBaseline(suite="quick", torch=torch, cases=cases)


@pytest.fixture
def store(tmp_path):
    return WorkStore(tmp_path / "baselines")


def save(store, baseline, torch=TORCH):
    store.update("quick", torch, lambda _: baseline)
    return store.path("quick", torch)


def test_nothing_is_stored_at_first(store):
    assert store.load("quick", TORCH) == WorkBaseline(suite="quick", torch="2.13")
    assert store.versions("quick") == []


def test_what_is_stored_is_loaded(store):
    path = save(store, holding(USUAL))
    assert path == store.directory / "work" / "2.13" / "quick.json"
    assert store.load("quick", "2.13.9") == holding(USUAL)


def test_structures_are_stored_without_a_version_of_torch(store):
    structures = {CASE.id: make_stored_structure(CASE)}
    stored = WorkBaseline(suite="quick", cases=structures)
    store.update("quick", None, lambda _: stored)
    assert store.path("quick", None) == store.directory / "structure" / "quick.json"
    assert store.structures("quick") == structures
    assert store.structures("other") == {}
    assert store.structures_by_case() == {CASE.id: make_structure()}
    assert store.versions("quick") == []


def test_cases_of_one_structure_share_it_and_each_collective_is_a_line(store):
    cases = {case.id: make_stored_structure(case) for case in make_cases()}
    store.update("quick", None, lambda _: WorkBaseline(suite="quick", cases=cases))
    lines = store.path("quick", None).read_text().splitlines()
    assert lines.count('    {"bytes": 3232, "dtype": "float32", "kind": "all_reduce"}') == 1


def test_unchanged_counts_are_not_written_again(store):
    path = save(store, holding(USUAL))
    before = path.stat().st_mtime_ns, path.stat().st_ino
    store.update("quick", TORCH, lambda stored: stored)
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == before


@given(st.lists(step_works(), max_size=3))
def test_a_file_loses_nothing(works):
    log = (AcceptedWork(date="2026-01-02", commit=None, reason="r", cases=("case-0",)),)
    baseline = holding(*map(canonical, works))
    baseline = msgspec.structs.replace(baseline, accepted=log)
    data = json.loads(format_json(msgspec.to_builtins(work_to_file(baseline))))
    jsonschema.validate(data, work_schema())
    file = msgspec.convert(data, type(work_to_file(baseline)))
    assert work_from_file(file) == baseline


@given(step_works())
def test_the_same_counts_are_the_same_file(work):
    backwards = holding(work, work)
    cases = dict(reversed(backwards.cases.items()))
    backwards = msgspec.structs.replace(backwards, cases=cases)
    assert work_to_file(holding(work, canonical(work))) == work_to_file(backwards)


def test_cases_that_do_the_same_share_it():
    file = work_to_file(holding(USUAL, USUAL, USUAL))
    assert len(file.works) == 1
    assert {case.work for case in file.cases.values()} == {0}
    assert [works for site in file.sites for _, _, _, works, *_ in site.operations] == ["0"]
    assert [case.options for case in file.cases.values()] == [
        {"batch_size": number} for number in range(3)
    ]


def test_one_more_operation_is_one_more_line(store):
    old = save(store, holding(USUAL)).read_text().splitlines()
    more = make_work(
        (NORM, {"name": "aten.native_layer_norm"}), (NORM, {}), collectives=(make_collective(),)
    )
    new = save(store, holding(more)).read_text().splitlines()
    assert len(new) == len(old) + 1
    added = [line for line in new if line not in old]
    assert '    ["forward", "aten.clone", "float32", "0", 1, 0, 0, 0],' in added
    assert len(added) == 1


def test_the_other_versions_of_torch_come_after_this_one_nearest_first(store):
    for version in ("2.9.1", "2.12.0", "2.14.0", "3.1.0", "2.13.0"):
        torch = ".".join(version.split(".")[:2])
        save(store, holding(USUAL, torch=torch), version)

    assert store.versions("quick") == ["2.9", "2.12", "2.13", "2.14", "3.1"]
    found = store.load_nearest_first("quick", TORCH)
    assert [one.torch for one in found] == ["2.13", "2.12", "2.14", "2.9", "3.1"]
    first, *_ = store.load_nearest_first("quick", "2.15.0")
    assert (first.torch, first.cases) == ("2.15", {})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"suite": "other"}, "suite is 'other', not 'quick'"),
        ({"torch": "2.12"}, "torch is '2.12', not '2.13'"),
        ({"works": []}, r"cases\.case-0\.work: there is no work 0"),
        ({"works": [{"parameters": 1, "gradient_bytes": 4}]}, r"works\[0\]\.memory: missing"),
        ({"sites": []}, r"collectives\[0\]: there is no site 0"),
        ({"collectives": []}, r"works\[0\]\.collectives: there is no list 0"),
        ({"autograd": [["MmBackward0", "0-7", 1]]}, "autograd: there is no work 7"),
        ({"autograd": [["MmBackward0", "all", 1]]}, r"autograd\[0\]\[1\]: .*regex"),
        ({"later": 1}, "unknown field `later`"),
        ({"schema_version": 99}, "or move it away and count again: pytest -m work --save-baseline"),
    ],
)
def test_a_broken_file_is_refused_with_its_field(change, message, store):
    path = save(store, holding(USUAL))
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(BaselineError, match=message) as caught:
        store.load("quick", TORCH)
    assert str(caught.value).startswith(str(path))


def test_a_locked_directory_is_an_error(store, monkeypatch):
    save(store, holding(USUAL))
    monkeypatch.setattr(writing_module, "_LOCK_PATIENCE_S", 0.05)
    with (
        filelock.FileLock(store.directory / ".lock"),
        pytest.raises(BaselineError, match="another process has been writing"),
    ):
        store.update("quick", TORCH, lambda stored: stored)


def test_a_failed_write_leaves_the_old_file(store, monkeypatch):
    path = save(store, holding(USUAL))
    before = path.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.write", full)
    with pytest.raises(BaselineError, match=r"cannot be written \(No space left on device\)"):
        save(store, holding(make_step_work()))
    assert path.read_bytes() == before


def test_the_cases_of_a_suite_share_their_options():
    cases = make_cases(world_sizes=[1, 2, 4], batch_sizes=[8, 16])
    stored = {case.id: StoredWork(options=case.work(), step=USUAL) for case in cases}
    baseline = WorkBaseline(suite="quick", torch="2.13", cases=stored)
    file = work_to_file(baseline)
    assert file.options["model.hidden_dim"] == 32
    assert all("model.hidden_dim" not in case.options for case in file.cases.values())
    assert work_from_file(file) == baseline


def test_two_ranks_do_not_stand_for_four():
    """They would for DDP, but a user's model may do what it likes; counting four costs as much."""
    two, four = make_cases(world_sizes=[2, 4])
    stored = {two.id: StoredWork(options=two.work(), step=USUAL)}
    assert WorkBaseline(suite="quick", torch="2.13", cases=stored).of(four) is None


def test_stored_sites_are_sorted_and_only_those_that_are_used():
    late, early, unused = make_site(10, file="b.py"), make_site(10, file="a.py"), make_site(1)
    work = make_work((late, {}), (early, {"count": 2}))
    found = canonical(msgspec.structs.replace(work, sites=(*work.sites, unused)))
    assert found.sites == (early, late)
    assert [(one.site, one.count) for one in found.operations] == [(0, 2), (1, 1)]


@pytest.mark.parametrize(
    ("version", "minor"),
    [("2.13.0", "2.13"), ("2.13.1+cu130", "2.13"), ("2.14.0a0+gitabc.d", "2.14"), ("2.13", "2.13")],
)
def test_the_minor_version_of_torch(version, minor):
    assert torch_minor(version) == minor
