"""A baseline file is read strictly, and a failed write leaves the old file."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path

import filelock
import msgspec
import pytest

from ddp_perf.baselines import writing as writing_module
from ddp_perf.baselines.store import BaselineStore, baseline_schema, read_baseline
from ddp_perf.core.baseline import Rebaseline
from ddp_perf.core.verdict import Outcome
from ddp_perf.errors import BaselineError
from tests.builders import (
    make_baseline,
    make_case,
    make_case_baseline,
    make_environment,
    make_session,
)

KEY = "cpu-some-2c-host"


@pytest.fixture
def baseline():
    case = make_case()
    stored = make_case_baseline(case, make_session([0.01, 0.011]), make_session([0.012], day=2))
    return make_baseline({case.id: stored})


def test_a_stored_baseline_is_loaded(store, stored, baseline):
    stored(baseline)

    assert store.load(KEY) == baseline


def test_a_missing_file_is_an_empty_baseline_that_names_units(store):
    empty = store.load("h200")

    assert (empty.accelerator, empty.cases) == ("h200", {})
    assert (empty.units["step_time"], empty.units["peak_memory"]) == ("s", "bytes")
    assert not store.path("h200").exists()


def test_an_update_changes_the_baseline_on_disk(store, stored, baseline):
    stored(baseline)
    seen = []

    store.update(KEY, lambda current: seen.append(current) or current)

    assert seen == [baseline]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param('"sessions"', '"session', "is cut short, or is not JSON", id="broken JSON"),
        pytest.param('"first"', '"frist"', "frist", id="unknown field"),
        pytest.param(
            '"schema_version": 1',
            '"schema_version": 99',
            "is 99, this ddp-perf reads 1; use the ddp-perf that wrote the file, or move it",
            id="other version",
        ),
        pytest.param(
            '"schema_version": 1', '"version": 3', "schema_version: missing", id="no version"
        ),
        pytest.param(f'"accelerator": "{KEY}"', '"accelerator": "t4"', "'t4'", id="other machine"),
        pytest.param("[0.012]", "[-0.012]", "-0.012", id="negative"),
        pytest.param(
            '"step_time": [0.012]',
            '"step_time": [0]',
            "sessions[1].launches.step_time: 0.0 is no",
            id="zero",
        ),
        pytest.param("[0.012]", "[NaN]", "restore it", id="NaN"),
        pytest.param("[0.012]", '["x"]', "Expected `float | null`, got `str`", id="text"),
        pytest.param("[0.012]", "[0.012, 0.013]", "sessions[1].launches: the lists", id="uneven"),
        pytest.param('"2026-01-02T', '"2026-13-02T', "sessions[1].date: '2026-13-0", id="no date"),
        pytest.param(
            '"2026-01-02T',
            '"2199-01-02T',
            "sessions[1].date: 2199-01-02T03:04:05+00:00 is after this machine's clock",
            id="of the future",
        ),
        pytest.param(
            '"2026-01-02T',
            '"2025-01-02T',
            "sessions[1].date: 2025-01-02T03:04:05+00:00 follows 2026-01-01T03:04:05+00:00: put",
            id="not in order",
        ),
        pytest.param(
            '"environments": {\n  "',
            '"environments": {\n  "another ',
            "sessions[0].environment: environments has no '",
            id="no such environment",
        ),
    ],
)
def test_a_bad_file_is_refused_by_name_and_never_overwritten(
    store, stored, baseline, old, new, expected
):
    path = stored(baseline)
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")
    before = path.read_bytes()

    for attempt in (lambda: store.load(KEY), lambda: store.update(KEY, lambda current: current)):
        with pytest.raises(BaselineError) as caught:
            attempt()
        assert str(caught.value).startswith(f"{path}: ")
        assert expected in str(caught.value)
        assert "\n" not in str(caught.value)

    assert path.read_bytes() == before


def test_a_level_that_was_accepted_in_the_future_is_refused(store, stored):
    """No later session would count: each is older than its level."""
    case = make_case()
    entry = Rebaseline(date="2199-01-01", commit=None, reason="meant", ratio=None)
    of_future = make_baseline({case.id: make_case_baseline(case, log=(entry,))})

    with pytest.raises(BaselineError, match=r"log\[0\]\.date: 2199-01-01 is after this"):
        stored(of_future)

    assert not store.path(KEY).exists()


@pytest.mark.parametrize("content", [b"", b"[]", b"null", b"\xff\xfe", b"<<<<<<< HEAD\n{}"])
def test_a_file_that_is_not_a_baseline_is_refused(store, stored, baseline, content):
    path = stored(baseline)
    path.write_bytes(content)

    with pytest.raises(
        BaselineError,
        match=r"(not JSON|not a baseline file|merge conflict).*; restore it from version",
    ):
        store.update(KEY, lambda current: current)

    assert path.read_bytes() == content


def test_a_full_disk_leaves_the_old_file_and_nothing_beside_it(
    store, stored, baseline, monkeypatch
):
    path = stored(baseline)
    before, files = path.read_bytes(), set(path.parent.iterdir())

    def fail(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(BaselineError, match=r"cannot be written \(No space left on device\)"):
        store.update(KEY, lambda current: make_baseline())

    assert path.read_bytes() == before
    assert set(path.parent.iterdir()) == files


def test_a_failed_rename_leaves_the_old_file_and_nothing_beside_it(
    store, stored, baseline, monkeypatch
):
    path = stored(baseline)
    before, files = path.read_bytes(), set(path.parent.iterdir())

    def fail(self, target):
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(BaselineError, match="the old file is untouched"):
        store.update(KEY, lambda current: make_baseline())

    assert path.read_bytes() == before
    assert set(path.parent.iterdir()) == files


def test_an_update_that_fails_writes_nothing(store, stored, baseline):
    path = stored(baseline)
    before = path.read_bytes()

    def fail(current):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.update(KEY, fail)

    assert path.read_bytes() == before
    store.update(KEY, lambda current: current)  # the lock was let go


def test_a_locked_directory_is_an_error_with_a_remedy(store, stored, baseline, monkeypatch):
    path = stored(baseline)
    monkeypatch.setattr(writing_module, "_LOCK_PATIENCE_S", 0.05)

    with (
        filelock.FileLock(store.directory / ".lock"),
        pytest.raises(BaselineError, match=r"another process has been writing") as caught,
    ):
        store.update(KEY, lambda current: current)

    assert str(caught.value).startswith(f"{path}: ")


def test_a_directory_that_cannot_be_made_is_an_error(store):
    store.directory.write_text("a file")

    with pytest.raises(BaselineError, match="cannot be written"):
        store.update(KEY, lambda current: current)


@pytest.mark.parametrize("there", [True, False], ids=["there", "above it"])
def test_a_directory_that_cannot_be_written_is_found_before_anything_is_stored(
    there, store, monkeypatch
):
    if there:
        store.directory.mkdir()
    monkeypatch.setattr(os, "access", lambda path, mode: False)

    with pytest.raises(BaselineError, match=r"cannot be written, .*make it writable, or name") as e:
        store.check_storable()

    place = store.directory if there else store.directory.parent
    assert str(e.value).startswith(f"{place}: ")
    assert store.directory.exists() == there


def test_the_lock_of_another_user_that_cannot_be_written_is_found(
    store, stored, baseline, monkeypatch
):
    stored(baseline)
    store.check_storable()
    access = os.access
    monkeypatch.setattr(
        os, "access", lambda path, mode: Path(path).name != ".lock" and access(path, mode)
    )

    with pytest.raises(BaselineError, match=r"\.lock: cannot be written"):
        store.check_storable()


def test_a_file_in_the_place_of_the_directory_is_found(store):
    store.directory.write_text("a file")

    with pytest.raises(BaselineError, match="baselines: cannot be written"):
        store.check_storable()


def test_every_user_can_lock_whatever_the_umask(store, baseline):
    before = os.umask(0o077)
    try:
        store.update(KEY, lambda current: baseline)
    finally:
        os.umask(before)

    assert (store.directory / ".lock").stat().st_mode & 0o777 == 0o666


def test_the_schema_describes_every_field_that_is_written(stored, baseline):
    (case,) = baseline.cases.values()
    session = msgspec.structs.replace(
        case.sessions[0],
        environment=make_environment(tree="0123abcd"),
        terms=({"forward": 0.001},),
        overhead_s=0.5,
        verdicts={"tail": Outcome.SUSPECT},
        nodes=("n1",) * len(case.sessions[0].launches),
        slow_nodes={"n1": "2026-01-02T03:04:05+00:00"},
    )
    full = msgspec.structs.replace(case, sessions=(session,))
    path = stored(msgspec.structs.replace(baseline, cases={"some": full}))
    written = msgspec.json.decode(path.read_bytes())
    schema = baseline_schema()["$defs"]

    assert schema["FileBaseline"]["properties"].keys() == written.keys()
    assert schema["FileCase"]["properties"].keys() == written["cases"]["some"].keys()
    (in_file,) = written["cases"]["some"]["sessions"]
    assert schema["FileSession"]["properties"].keys() == in_file.keys()


def test_an_invalid_baseline_is_refused_before_it_is_written(store, stored, baseline):
    path = stored(baseline)
    before = path.read_bytes()
    (case_id,) = baseline.cases
    bad = make_case_baseline(make_case(), make_session([0.01, float("inf")]))
    wrong = msgspec.structs.replace(baseline, cases={case_id: bad})

    with pytest.raises(BaselineError, match=r"sessions\[0\].launches.step_time: inf is no"):
        store.update(KEY, lambda _: wrong)

    assert path.read_bytes() == before


def test_a_baseline_read_by_its_path_is_checked(stored, baseline):
    path = stored(baseline)
    path.write_text(path.read_text().replace("[0.012]", "[-1]"))

    with pytest.raises(BaselineError, match=r"-1\.0 is no measured figure"):
        read_baseline(path)


def test_a_missing_directory_is_created(tmp_path, baseline):
    store = BaselineStore(tmp_path / "deep" / "baselines")

    store.update(KEY, lambda _: baseline)

    assert store.accelerators() == [KEY]


def test_the_lock_leaves_nothing_untracked_in_the_users_repository(tmp_path, baseline):
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    store = BaselineStore(tmp_path / "baselines")
    path = store.update(baseline.accelerator, lambda _: baseline)

    done = subprocess.run(
        ["git", "-C", tmp_path, "status", "--porcelain", "--untracked-files=all"],
        check=True,
        capture_output=True,
        text=True,
        encoding="utf-8",
    )

    assert done.stdout.split() == ["??", f"baselines/{path.name}"]


def test_a_gitignore_of_the_user_is_kept(store, baseline):
    store.directory.mkdir(exist_ok=True)
    path = store.directory / ".gitignore"
    path.write_text("*.tmp\n")

    store.update(baseline.accelerator, lambda _: baseline)

    assert path.read_text() == "*.tmp\n"


def test_relatives_are_of_the_same_family_the_nearest_name_first(store):
    keys = ("h200", "h200-nvl", "h200-sxm", "h2000", "h200-nvl-80gb", "a100")
    for key in reversed(keys):
        store.update(key, lambda _, key=key: make_baseline(accelerator=key))

    assert store.accelerators() == sorted(keys)
    assert [b.accelerator for b in store.relatives("h200-nvl")] == [
        "h200-nvl-80gb",
        "h200",
        "h200-sxm",
    ]


def test_a_processor_has_no_relatives(store):
    for key in ("cpu-a-2c-host", "cpu-a-2c-other"):
        store.update(key, lambda _, key=key: make_baseline(accelerator=key))

    assert store.relatives("cpu-a-2c-host") == []


def test_the_relatives_of_a_processor_in_a_pool_are_the_pools_other_processors(store):
    for key in ("cpu-a-2c@ci", "cpu-b-2c@ci", "cpu-a-2c@other", "cpu-a-2c-host"):
        store.update(key, lambda _, key=key: make_baseline(accelerator=key))

    assert [b.accelerator for b in store.relatives("cpu-a-2c@ci")] == ["cpu-b-2c@ci"]
