"""The state of the user's code is read whole, leaves the repository alone, and runs again."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddp_perf.duel.sides.checkout import checked_out, find_repository
from ddp_perf.errors import SideError
from ddp_perf.system.git import (
    CodeState,
    CodeStateError,
    changed_between,
    changed_lines,
    has_commit,
    read_code_state,
    tree_of,
)
from tests.repositories import Repository, every_byte

MIB = 2**20


@pytest.fixture(autouse=True)
def _no_settings(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))


@pytest.fixture
def project(tmp_path):
    return Repository(tmp_path / "project")


def files_below(directory: Path) -> dict[str, tuple[str, bytes]]:
    """Return kind and content of each file and link, without those of git."""
    found = {}
    for path in directory.rglob("*"):
        name = os.fsencode(path.relative_to(directory)).decode("utf-8", "backslashreplace")
        if ".git" in path.parts:
            continue
        if path.is_symlink():
            found[name] = ("link", os.fsencode(path.readlink()))
        elif path.is_file():
            kind = "program" if path.stat().st_mode & 0o100 else "file"
            found[name] = (kind, path.read_bytes())
    return found


def put_together(state, project, tmp_path):
    """Return the files of a checkout of the state."""
    patch = None
    if state.patch:
        patch = tmp_path / "kept.patch"
        patch.write_bytes(state.patch)
        patch = str(patch)
    repository = find_repository(project.path)
    with checked_out(state.commit, repository, [].append, patch=patch) as directory:
        return files_below(directory)


def read(directory, *leave_out):
    state = read_code_state(directory, leave_out)
    assert isinstance(state, CodeState), state
    return state


def test_a_clean_tree_is_that_of_its_commit(project):
    state = read(project.path)

    assert state == CodeState(
        commit=project.first, tree=project.git("rev-parse", "HEAD^{tree}"), patch=b""
    )


def changed(path):
    (path / "model.py").write_bytes(b"STEPS = 2\n")


def untracked(path):
    (path / "deep" / "er").mkdir(parents=True)
    (path / "deep" / "er" / "new.py").write_bytes(b"")
    (path / "deep" / "other.py").write_bytes(b"no newline at the end")


def deleted(path):
    (path / "model.py").unlink()


def binary(path):
    (path / "weights.bin").write_bytes(bytes(range(256)) * 40)
    (path / "model.py").write_bytes(b"\0\1\2" * 999)


def line_ends(path):
    (path / "model.py").write_bytes(b"STEPS = 1\r\nLAYERS = 2\r\nmixed\n\rend")


def strange_names(path):
    names = ("with space.py", "f\u00fcr.py", "new\nline.py", 'quote".py', "tab\t.py", "-x", "*")
    for name in names:
        (path / name).write_text(name, encoding="utf-8")
    Path(os.fsdecode(os.fsencode(path) + b"/latin-\xe4.py")).write_bytes(b"\xe4\n")


def links(path):
    (path / "link").symlink_to("model.py")
    (path / "dangling").symlink_to("../no where/\u00fc")
    (path / "model.py").unlink()
    (path / "model.py").symlink_to("link")


def programs(path):
    (path / "model.py").chmod(0o755)
    (path / "run.sh").write_bytes(b"#!/bin/sh\n")
    (path / "run.sh").chmod(0o755)


def trailing_blanks(path):
    (path / "model.py").write_bytes(b"STEPS = 1  \n\n\n\t \n \t x\n\x0c\n")


def a_directory_for_a_file(path):
    (path / "model.py").unlink()
    (path / "model.py").mkdir()
    (path / "model.py" / "__init__.py").write_bytes(b"x")


EDITS = [
    *(changed, untracked, deleted, binary, line_ends, strange_names, links, programs),
    *(trailing_blanks, a_directory_for_a_file),
]


@pytest.mark.parametrize("staged", [False, True])
@pytest.mark.parametrize("edit", EDITS)
def test_a_state_with_changes_is_put_together_again(project, tmp_path, edit, staged):
    edit(project.path)
    if staged:
        project.git("add", "--all")

    state = read(project.path)

    assert state.problem is None
    assert state.tree != tree_of(project.path, project.first)
    assert put_together(state, project, tmp_path) == files_below(project.path)
    project.git("add", "--all")
    assert state.tree == project.git("write-tree")


def test_what_is_staged_and_then_changed_again_counts_as_the_tree_has_it(project, tmp_path):
    project.write({"model.py": "staged\n", "gone.py": "staged\n", "later.py": ""})
    project.git("add", "model.py", "gone.py")
    project.git("add", "--intent-to-add", "later.py")
    project.write({"model.py": "STEPS = 3\n"})
    (project.path / "gone.py").unlink()

    state = read(project.path)

    assert put_together(state, project, tmp_path) == {
        "model.py": ("file", b"STEPS = 3\n"),
        "later.py": ("file", b""),
    }


def test_an_edit_that_was_taken_back_leaves_the_tree_of_the_commit(project):
    clean = read(project.path)
    project.write({"model.py": "STEPS = 2\n", "new.py": ""})
    assert read(project.path) != clean

    project.write({"model.py": "STEPS = 1\n"})
    (project.path / "new.py").unlink()

    assert read(project.path) == clean


def test_equal_files_have_equal_names_whatever_is_committed_of_them(project):
    project.write({"model.py": "STEPS = 2\n", "new.py": "x = 1\n"})
    before = read(project.path)

    project.git("add", "--all")
    project.git("commit", "--quiet", "--message", "second")
    after = read(project.path)

    assert before.tree == after.tree
    assert (before.commit, bool(before.patch)) == (project.first, True)
    assert after.patch == b""
    assert changed_between(project.path, before, after) == ()


def test_files_that_git_ignores_do_not_count(project):
    project.commit({".gitignore": "*.log\n/data/\n"}, "ignores")
    clean = read(project.path)

    project.write({"a.log": "x", "data/train.bin": "x"})

    assert read(project.path) == clean


def test_caches_and_what_sessions_write_do_not_count(project):
    project.commit({"baselines/cpu.json": "1", "report.html": "1"}, "with baselines")
    clean = read(project.path)

    project.write({
        "__pycache__/model.cpython-311.pyc": "x",
        "deep/.pytest_cache/v/x": "x",
        ".hypothesis/x": "x",
        "baselines/cpu.json": "2",
        "baselines/code/abc.patch": "x",
        "report.html": "2",
        "out.json": "x",
        ".out.json.abcdefgh": "x",  # its writer was killed
    })  # fmt: skip
    left_out = [project.path / name for name in ("baselines", "report.html", "out.json")]

    assert read(project.path, *left_out) == clean
    assert read(project.path).tree != clean.tree


def test_a_left_out_directory_may_be_named_by_a_link(project, tmp_path):
    (tmp_path / "link").symlink_to(project.path)
    project.write({"baselines/cpu.json": "2"})

    assert read(project.path, tmp_path / "link" / "baselines").patch == b""


def test_a_project_below_a_directory_with_the_name_of_a_cache_is_read(tmp_path):
    project = Repository(tmp_path / ".hypothesis" / "project")
    project.write({"model.py": "STEPS = 2\n"})

    assert read(project.path).patch


@pytest.mark.parametrize("committed", [False, True])
def test_a_nested_repository_cannot_be_kept(project, committed):
    inner = project.path / "vendor" / "inner"
    inner.mkdir(parents=True)
    project.git("init", "--quiet", str(inner))
    if committed:
        Repository(inner)
    (inner / "layer.py").write_text("x", encoding="utf-8")

    state = read(project.path)

    assert state.tree is None
    assert state.commit == project.first
    assert "vendor/inner/ is a repository of its own; add it to .gitignore" in state.problem


def test_a_submodule_cannot_be_kept(project, tmp_path):
    """A checkout would lack its files, and its own edits do not change the name of the tree."""
    inner = Repository(tmp_path / "inner")
    add = ("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner.path))
    project.git(*add, "vendor/inner")
    project.git("commit", "--quiet", "--message", "a submodule")

    state = read(project.path)

    assert state.tree is None
    assert "vendor/inner is a submodule" in state.problem
    assert "git subtree" in state.problem


@pytest.mark.parametrize("staged", [False, True])
@pytest.mark.parametrize("size", [2 * MIB, 9 * MIB], ids=["the patch", "what is read"])
def test_too_many_bytes_are_not_kept_and_the_largest_file_is_named(project, size, staged):
    (project.path / "weights.bin").write_bytes(os.urandom(size))
    (project.path / "small.py").write_bytes(b"x")
    if staged:
        project.git("add", "--all")

    state = read(project.path)

    assert (state.tree, state.patch) == (None, b"")
    assert "2 files are not committed, and too large to be kept" in state.problem
    assert f"(weights.bin has {size / MIB:.1f} MiB)" in state.problem
    assert "commit them, or add them to .gitignore" in state.problem


def test_large_files_that_are_committed_do_not_matter(project):
    (project.path / "weights.bin").write_bytes(os.urandom(2 * MIB))
    project.git("add", "--all")
    project.git("commit", "--quiet", "--message", "weights")
    project.write({"model.py": "STEPS = 2\n"})

    assert 0 < len(read(project.path).patch) < 1000


def test_without_a_repository_or_a_commit_the_remedy_is_named(tmp_path):
    nowhere = tmp_path / "nowhere"
    nowhere.mkdir()
    remedy = "it is not in a git repository with a commit; git init, and commit it"
    assert read_code_state(nowhere) == remedy

    subprocess.run(["git", "init", "--quiet", str(nowhere)], check=True)
    assert read_code_state(nowhere) == remedy


def test_what_git_says_is_not_taken_for_a_missing_repository(project, monkeypatch):
    """As in a container, where the files are another user's."""
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")

    problem = str(read_code_state(project.path))

    assert "dubious ownership" in problem
    assert "run git config --global --add safe.directory" in problem


def test_a_machine_without_git_says_so(project, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))

    assert "git cannot be started" in str(read_code_state(project.path))


def test_the_project_may_lie_below_the_root_of_the_repository(project, tmp_path):
    """Files beside it are imported as well, so all of them count."""
    project.commit({"training/model.py": "1\n", "shared/layers.py": "1\n"}, "a project")
    before = read(project.path / "training")
    project.write({"training/model.py": "2\n", "shared/layers.py": "2\n", "new.py": ""})

    state = read(project.path / "training")

    assert put_together(state, project, tmp_path) == files_below(project.path)
    below = project.path / "training"
    assert changed_between(below, before, state) == (
        *("new.py", "shared/layers.py", "training/model.py"),
    )
    lines = changed_lines(below, before, state, ["shared/layers.py"])
    assert lines == ("shared/layers.py:1: 2",)


def test_a_linked_worktree_is_a_repository(project, tmp_path):
    project.git("worktree", "add", "--quiet", "--detach", str(tmp_path / "other"))
    (tmp_path / "other" / "model.py").write_text("STEPS = 2\n", encoding="utf-8")

    state = read(tmp_path / "other")

    assert changed_between(tmp_path / "other", read(project.path), state) == ("model.py",)
    assert put_together(state, project, tmp_path)["model.py"] == ("file", b"STEPS = 2\n")


def test_a_repository_with_a_colon_in_its_path(tmp_path):
    project = Repository(tmp_path / 'run:3 "a" \\b')
    before = read(project.path)
    project.write({"model.py": "STEPS = 2\n"})

    assert changed_between(project.path, before, read(project.path)) == ("model.py",)


def test_a_merge_conflict_is_read_as_the_files_are(project, tmp_path):
    project.git("checkout", "--quiet", "-b", "other")
    project.commit({"model.py": "STEPS = 2\n"}, "other")
    project.git("checkout", "--quiet", "main")
    project.commit({"model.py": "STEPS = 3\n"}, "own")
    with pytest.raises(subprocess.CalledProcessError):
        project.git("merge", "other")
    before = every_byte(project.path)

    state = read(project.path)

    assert put_together(state, project, tmp_path) == files_below(project.path)
    assert b"<<<<<<<" in state.patch
    assert every_byte(project.path) == before


def test_variables_of_git_do_not_lead_elsewhere(project, tmp_path, monkeypatch):
    """As a hook of git sets them for what it runs."""
    other = Repository(tmp_path / "other")
    project.write({"model.py": "STEPS = 2\n"})
    expected = read(project.path)
    clean = read(other.path)
    monkeypatch.setenv("GIT_DIR", str(other.path / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other.path / ".git" / "index"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other.path))
    monkeypatch.setenv("GIT_OBJECT_DIRECTORY", str(tmp_path / "nowhere"))
    monkeypatch.setenv("GIT_PREFIX", "deep/")

    assert read(project.path) == expected
    assert changed_between(project.path, clean, expected) == ("model.py",)


SETTINGS = {
    "diff.noprefix": "true",
    "diff.mnemonicPrefix": "true",
    "diff.external": "false",
    "diff.own.command": "false",
    "diff.own.textconv": "false",
    "diff.context": "0",
    "diff.renames": "copies",
    "diff.suppressBlankEmpty": "true",
    "color.ui": "always",
    "core.quotePath": "false",
    "core.splitIndex": "true",
    "core.untrackedCache": "true",
    "core.fsmonitor": "false",
    "core.whitespace": "trailing-space,cr-at-eol",
    "apply.whitespace": "fix",
    "apply.ignoreWhitespace": "change",
    "status.relativePaths": "false",
    "index.version": "4",
}


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_of_the_user_change_nothing(project, tmp_path, name):
    files = {".gitattributes": "*.py diff=own\n", "a.py": "1\n\n2\n\n3\n", "b c.py": "x \n"}
    project.commit(files, "more")
    clean = read(project.path)
    project.write({"a.py": "1\n\n2  \n\n4\n", "\u00fc.py": "x\n"})
    (project.path / "model.py").rename(project.path / "moved.py")
    expected = read(project.path)
    project.git("config", name, SETTINGS[name])
    before = every_byte(project.path)

    state = read(project.path)

    assert state.tree == expected.tree
    names = ("a.py", "model.py", "moved.py", "\u00fc.py")
    assert changed_between(project.path, clean, state) == names
    assert "a.py:3: 2" in changed_lines(project.path, clean, state, names)
    assert put_together(state, project, tmp_path) == files_below(project.path)
    assert every_byte(project.path) == before


def test_an_external_diff_of_the_environment_is_not_asked(project, monkeypatch):
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", "false")
    project.write({"model.py": "STEPS = 2\n"})

    assert b"+STEPS = 2" in read(project.path).patch


ATTRIBUTES = ["* text eol=crlf\n", "* text eol=lf\n", "* -text\n", "* text=auto\n"]


@pytest.mark.parametrize("attributes", ATTRIBUTES)
def test_line_ends_that_attributes_set_come_back(project, tmp_path, attributes):
    project.commit({".gitattributes": attributes}, "line ends")
    end = b"\r\n" if b"crlf" in attributes.encode() else b"\n"
    (project.path / "model.py").write_bytes(b"STEPS = 2" + end + b"LAYERS = 1" + end)
    (project.path / "new.py").write_bytes(b"x" + end)

    state = read(project.path)

    found, expected = put_together(state, project, tmp_path), files_below(project.path)
    assert {name: found[name] for name in ("model.py", "new.py")} == {
        name: expected[name] for name in ("model.py", "new.py")
    }


def test_an_edit_within_the_same_tick_of_the_clock_is_seen(project):
    """Git compares a file's content where its time is not older than that of the index."""
    project.git("config", "core.trustctime", "false")
    model, index = project.path / "model.py", project.path / ".git" / "index"
    os.utime(model, (1e9, 1e9))
    project.git("add", "model.py")
    project.git("update-index", "--refresh")
    os.utime(index, (1e9, 1e9))
    model.write_bytes(b"STEPS = 7\n")  # as long as before
    os.utime(model, (1e9, 1e9))

    assert b"STEPS = 7" in read(project.path).patch


@pytest.mark.parametrize("edit", EDITS)
def test_nothing_in_the_repository_is_written(project, edit):
    clean = read(project.path)
    edit(project.path)
    project.git("add", "--all")
    (project.path / "another.py").write_bytes(b"x")
    before = every_byte(project.path)

    state = read(project.path)
    names = changed_between(project.path, clean, state)
    changed_lines(project.path, state, clean, names)
    has_commit(project.path, state.commit)

    assert every_byte(project.path) == before


def test_the_changes_between_any_two_states(project):
    states = {"clean": read(project.path)}
    project.write({"model.py": "STEPS = 2\n", "a.py": "one\n"})
    states["edited"] = read(project.path)
    project.git("add", "--all")
    project.git("commit", "--quiet", "--message", "second")
    project.git("mv", "a.py", "b.py")
    states["moved"] = read(project.path)

    def between(before, after):
        return changed_between(project.path, states[before], states[after])

    assert between("clean", "edited") == between("edited", "clean") == ("a.py", "model.py")
    assert between("edited", "moved") == ("a.py", "b.py")
    assert between("clean", "moved") == ("b.py", "model.py")
    assert between("moved", "moved") == ()


def test_the_changed_lines_are_named_where_today_has_them(project):
    old = "a = 1\nb = 2\nc = 3\n\nd = 4\ne = 5\n"
    project.commit({"model.py": old, "gone.py": "x\n"}, "more")
    before = read(project.path)
    project.write({
        "model.py": "new = 0\na = 1\nb = 2.0\n\n    \nc = 3\n\ne = 5\n",
        "added.py": "x = 1\n",
        "not read.py": "x = 1\n",
    })  # fmt: skip
    (project.path / "gone.py").unlink()
    after = read(project.path)

    found = changed_lines(project.path, before, after, ["added.py", "gone.py", "model.py"])

    assert found == (
        "added.py:1: x = 1",
        "gone.py:0: lines were removed below it",
        "model.py:1: new = 0",
        "model.py:3: b = 2.0",
        "model.py:7: lines were removed below it",
    )


@pytest.mark.parametrize(
    "name", ["with space.py", "f\u00fcr.py", 'quote".py', "new\nline.py", "*.py", ":(top)x.py"]
)
def test_lines_of_a_file_with_any_name(project, name):
    project.write({name: "before = 1\n"})
    before = read(project.path)
    project.write({name: "after = 1\n", "other.py": "x\n"})

    lines = changed_lines(project.path, before, read(project.path), [name])

    assert lines == (f"{name}:1: after = 1",)


def test_lines_that_look_like_those_of_a_patch(project):
    project.write({"query.sql": "-- select\n--- a/x\nkept\n"})
    before = read(project.path)
    project.write({"query.sql": "++ b/y\n@@ -1 +9 @@\nkept\na\x0cb\n+c\n"})

    lines = changed_lines(project.path, before, read(project.path), ["query.sql"])

    assert lines == (
        "query.sql:1: ++ b/y",
        "query.sql:2: @@ -1 +9 @@",
        "query.sql:4: a\x0cb",
        "query.sql:5: +c",
    )


def test_lines_that_are_not_utf_8_can_be_written_as_json(project):
    before = read(project.path)
    (project.path / "model.py").write_bytes(b"x = '\xe4'\n")

    (line,) = changed_lines(project.path, before, read(project.path), ["model.py"])

    assert line.encode("utf-8").startswith(b"model.py:1: x = '")


def test_a_state_whose_patch_is_lost_cannot_be_compared(project):
    clean = read(project.path)
    project.write({"model.py": "STEPS = 2\n"})
    state = read(project.path)
    lost = CodeState(commit=state.commit, tree=state.tree)
    unknown = CodeState(commit=state.commit, tree=None, problem="too large")
    elsewhere = CodeState(commit="0" * 40, tree=state.tree)
    broken = CodeState(commit=state.commit, tree=state.tree, patch=b"no patch\n")

    with pytest.raises(CodeStateError, match=f"beyond {project.first[:12]} was not kept"):
        changed_between(project.path, lost, clean)
    with pytest.raises(CodeStateError, match="too large"):
        changed_lines(project.path, clean, unknown, ["model.py"])
    with pytest.raises(CodeStateError, match="git read-tree"):
        changed_between(project.path, elsewhere, clean)
    with pytest.raises(CodeStateError, match="git apply"):
        changed_between(project.path, broken, clean)
    assert changed_between(project.path, lost, state) == ()  # equal names are equal files


def test_commits_of_the_repository_are_known_by_enough_of_their_names(project):
    assert has_commit(project.path, project.first[:12])
    assert not has_commit(project.path, "0" * 12)
    assert tree_of(project.path, project.first[:12]) == read(project.path).tree
    with pytest.raises(CodeStateError):
        tree_of(project.path, "0" * 12)


def test_a_patch_of_another_commit_does_not_fit(project, tmp_path):
    project.commit({"model.py": "a\nb\nc\n"}, "second")
    project.write({"model.py": "a\nB\nc\n"})
    state = read(project.path)
    wrong = CodeState(commit=project.first, tree=state.tree, patch=state.patch)

    with pytest.raises(SideError, match="does not fit its commit"):
        put_together(wrong, project, tmp_path)


NAMES = st.sampled_from(["a.py", "b c.py", "deep/\u00e9.py", "deep/er/x", "run.sh"])
CONTENTS = st.one_of(
    st.binary(max_size=60),
    st.lists(st.sampled_from([b"a", b"b ", b"", b"\tx\r"]), max_size=6).map(b"\n".join),
)
FILES = st.dictionaries(NAMES, st.tuples(CONTENTS, st.sampled_from(["file", "program", "link"])))


def write(path: Path, files) -> None:
    """Make these the only files of the directory."""
    for name in files_below(path):
        (path / name).unlink()
    for name, (content, kind) in files.items():
        file = path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        if kind == "link":
            file.symlink_to(content.hex() or "empty")
        else:
            file.write_bytes(content)
            file.chmod(0o755 if kind == "program" else 0o644)


@settings(max_examples=12)
@given(committed=FILES, staged=FILES, tree=FILES)
def test_any_state_is_put_together_again(tmp_path_factory, committed, staged, tree):
    path = tmp_path_factory.mktemp("any")
    project = Repository(path / "project")
    write(project.path, committed)
    project.git("add", "--all")
    project.git("commit", "--quiet", "--allow-empty", "--message", "second")
    clean = read(project.path)
    write(project.path, staged)
    project.git("add", "--all")
    write(project.path, tree)
    before = every_byte(project.path)

    state = read(project.path)

    assert put_together(state, project, path) == files_below(project.path)
    now, then = files_below(project.path), put_together(clean, project, path)
    differ = {name for name in {*now, *then} if now.get(name) != then.get(name)}
    assert {*changed_between(project.path, clean, state)} == differ
    assert every_byte(project.path) == before
