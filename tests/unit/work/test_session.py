"""A session of counting: each case is counted once, judged, and stored if that is asked for."""

from __future__ import annotations

import msgspec
import pytest

from ddp_perf.baselines.save import Saving
from ddp_perf.baselines.work import WorkStore
from ddp_perf.core.launch import LaunchFailure
from ddp_perf.core.verdict import Outcome
from ddp_perf.errors import BaselineError
from ddp_perf.work.session import WorkSession
from tests.builders import make_case, make_failure
from tests.counters import FakeCounter
from tests.works import make_operation, make_step_work

CASE = make_case()
ACCEPT = Saving(mode="accept", reason="larger, see #12")


class Directory:
    """A directory of stored counts; each `count` is that of a new process."""

    def __init__(self, path):
        self.path = path
        self.store = WorkStore(path)

    def session(self, clones=1, *, torch="2.13.0", saving=None):
        work = make_step_work(operations=(make_operation(count=clones),))
        counter = FakeCounter(lambda request: work, torch=torch)
        return WorkSession(counter, self.store, root=self.path, saving=saving)

    def count(self, clones=1, case=CASE, **options):
        return self.session(clones, **options).count(case)

    def outcome(self, *arguments, **options):
        return self.count(*arguments, **options).verdict.outcome


@pytest.fixture
def stored(tmp_path):
    """A directory that has two clones of the case."""
    directory = Directory(tmp_path)
    directory.count(2, saving=Saving(mode="missing"))
    return directory


def test_a_case_is_counted_once(tmp_path):
    counter = FakeCounter()
    session = WorkSession(counter, WorkStore(tmp_path), root=tmp_path)

    assert session.count(CASE) is session.count(CASE)
    assert len(counter.asked) == 2  # its first and its last rank


def test_without_anything_stored_there_is_no_verdict_and_nothing_is_written(tmp_path):
    found = Directory(tmp_path).count()

    assert found.verdict.outcome is Outcome.NO_BASELINE
    assert (found.saved, found.stored) == (None, None)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mode", ["missing", "append"])
def test_what_is_missing_is_stored_with_its_file(tmp_path, mode):
    directory = Directory(tmp_path)

    saved = directory.count(saving=Saving(mode=mode)).saved

    assert saved == str(tmp_path / "work" / "2.13" / f"{CASE.suite}.json")
    assert directory.outcome() is Outcome.PASS


def test_the_second_and_the_hundredth_session_store_nothing_more(stored):
    file = stored.store.path(CASE.suite, "2.13")
    before = file.read_bytes(), file.stat().st_mtime_ns

    for mode in ("missing", "append", "accept"):
        saving = Saving(mode=mode, reason="none" if mode == "accept" else None)
        assert stored.count(2, saving=saving).saved is None
    assert (file.read_bytes(), file.stat().st_mtime_ns) == before


@pytest.mark.parametrize(("clones", "outcome"), [(3, Outcome.REGRESSION), (1, Outcome.IMPROVEMENT)])
def test_only_accept_replaces_what_is_stored(stored, clones, outcome):
    for mode in ("missing", "append"):
        found = stored.count(clones, saving=Saving(mode=mode))
        assert (found.verdict.outcome, found.saved) == (outcome, None)

    accepted = stored.count(clones, saving=ACCEPT)

    assert accepted.verdict.outcome is outcome  # by what was stored before
    assert accepted.saved is not None
    assert stored.outcome(clones) is Outcome.PASS
    (entry,) = stored.store.load(CASE.suite, "2.13").accepted
    assert entry.reason == "larger, see #12"


def test_other_work_is_more_than_this_torch_has_stored_and_nothing_is_stored_of_it(stored):
    file = stored.store.path(CASE.suite, "2.13")
    before = file.read_bytes()

    def other_work(clones, **options):
        return stored.session(clones, **options).other_work(CASE)

    assert other_work(3, saving=Saving(mode="missing")).startswith(f"{file} has other counts: ")
    assert [other_work(clones) for clones in (1, 2)] == [None, None]
    assert other_work(3, torch="2.14.0") is None
    assert file.read_bytes() == before


@pytest.mark.parametrize("in_store", [True, False])
def test_other_work_is_unknown_if_nothing_can_be_compared(tmp_path, stored, in_store):
    counter = FakeCounter(lambda request: make_failure(request.case))
    store = stored.store if in_store else WorkStore(tmp_path / "empty")

    found = WorkSession(counter, store, root=tmp_path).other_work(CASE)

    assert found is None
    assert bool(counter.asked) is in_store


def test_what_the_verdict_compared_with_is_a_part_of_the_result(stored):
    found = stored.count(3)

    assert sum(one.count for one in found.stored.operations) == 2
    assert sum(one.count for one in found.work.operations) == 3


def test_after_an_upgrade_of_torch_nothing_is_red_and_both_versions_are_kept(stored):
    assert stored.outcome(3, torch="2.14.0") is Outcome.INCOMPARABLE

    assert stored.count(3, torch="2.14.0", saving=Saving(mode="missing")).saved is not None
    assert stored.outcome(3, torch="2.14.1+cu128") is Outcome.PASS
    assert stored.outcome(2) is Outcome.PASS


def test_a_changed_option_with_equal_counts_passes_until_its_new_value_is_accepted(stored):
    other = msgspec.structs.replace(CASE, batch_size=CASE.batch_size + 1)

    found = stored.count(2, other)
    assert found.verdict.outcome is Outcome.PASS
    assert "batch_size" in found.verdict.options[0]
    assert stored.count(2, other, saving=ACCEPT).saved is not None
    assert stored.count(2, other).verdict.options == ()


def test_a_failure_is_neither_judged_nor_stored(tmp_path):
    counter = FakeCounter(lambda request: make_failure(request.case))
    saving = Saving(mode="missing")
    session = WorkSession(counter, WorkStore(tmp_path), root=tmp_path, saving=saving)

    assert isinstance(session.count(CASE), LaunchFailure)
    assert list(tmp_path.iterdir()) == []


def test_a_broken_file_is_refused_before_anything_is_counted(stored):
    stored.store.path(CASE.suite, "2.13").write_text("{")
    counter = FakeCounter()
    session = WorkSession(counter, stored.store, root=stored.path)

    with pytest.raises(BaselineError, match=r"quick\.json: is cut short"):
        session.check([CASE])
    with pytest.raises(BaselineError, match=r"quick\.json: is cut short"):
        session.count(CASE)
    assert counter.asked == []


def test_closing_ends_the_counter(tmp_path):
    counter = FakeCounter()
    WorkSession(counter, WorkStore(tmp_path), root=tmp_path).close()

    assert counter.closed
