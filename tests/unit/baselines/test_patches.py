"""What the code of a session had beyond its commit is kept as long as a session names it."""

from __future__ import annotations

import os
import time

import msgspec
import pytest

from ddp_perf.errors import BaselineError
from tests.builders import (
    make_baseline,
    make_case,
    make_case_baseline,
    make_environment,
    make_session,
)

DAY_S = 86_400
PATCH = b"diff --git a/model.py b/model.py\n\0\xff\n"


def age(path, days):
    then = time.time() - days * DAY_S
    os.utime(path, (then, then))


def keep(store, tree, *, days=0.0):
    store.keep_patch(tree, PATCH)
    age(store.patch_path(tree), days)


def kept(store):
    return {path.stem for path in (store.directory / "code").glob("*.patch")}


def name(store, key, *trees):
    """Store a session for each tree."""
    case = make_case()
    sessions = [
        msgspec.structs.replace(
            make_session([0.01, 0.011], day=day),
            environment=make_environment(tree=tree, accelerator_key=key),
        )
        for day, tree in enumerate(trees, start=1)
    ]
    written = make_baseline({case.id: make_case_baseline(case, *sessions)}, accelerator=key)
    store.update(key, lambda _: written)


def test_a_patch_is_kept_byte_for_byte_beside_the_baselines(store):
    store.keep_patch("abc", PATCH)

    assert store.patch_path("abc") == store.directory / "code" / "abc.patch"
    assert store.patch_path("abc").read_bytes() == PATCH


def test_a_patch_that_is_there_is_not_written_again(store):
    store.keep_patch("abc", PATCH)
    before = store.patch_path("abc").stat()

    store.keep_patch("abc", PATCH)

    assert store.patch_path("abc").stat().st_ino == before.st_ino


def test_a_damaged_patch_is_replaced(store):
    store.keep_patch("abc", PATCH)
    store.patch_path("abc").write_bytes(b"")

    store.keep_patch("abc", PATCH)

    assert store.patch_path("abc").read_bytes() == PATCH


def test_patches_that_no_session_names_are_removed_with_the_next_one(store):
    name(store, "cpu-some-2c-host", None, "named")
    name(store, "h200", "elsewhere")
    for tree in ("named", "elsewhere", "gone", "older"):
        keep(store, tree, days=3)

    store.keep_patch("new", PATCH)

    assert kept(store) == {"named", "elsewhere", "new"}


def test_a_patch_that_may_be_about_to_be_named_stays(store):
    """Another process has kept it, and not yet stored its session."""
    keep(store, "fresh", days=0.5)
    keep(store, "old", days=1.5)

    store.keep_patch("new", PATCH)

    assert kept(store) == {"fresh", "new"}


def test_a_patch_that_is_kept_again_is_about_to_be_named_again(store):
    """The session that named it was dropped, and the same code is measured once more."""
    keep(store, "abc", days=3)

    store.keep_patch("abc", PATCH)
    store.keep_patch("new", PATCH)

    assert kept(store) == {"abc", "new"}


def test_other_files_of_the_directory_stay(store):
    keep(store, "old", days=3)
    note = store.directory / "code" / "README.md"
    note.write_text("mine", encoding="utf-8")
    age(note, 3)

    store.keep_patch("new", PATCH)

    assert note.exists()
    assert kept(store) == {"new"}


def test_a_directory_that_cannot_be_written_is_an_error_with_a_remedy(store):
    store.directory.mkdir()
    (store.directory / "code").write_text("a file", encoding="utf-8")

    with pytest.raises(BaselineError, match="baselines"):
        store.keep_patch("abc", PATCH)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_that_forbids_it_is_an_error(store):
    (store.directory / "code").mkdir(parents=True)
    (store.directory / "code").chmod(0o500)

    with pytest.raises(BaselineError, match="cannot be written"):
        store.keep_patch("abc", PATCH)
