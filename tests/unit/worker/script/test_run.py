"""A script that is run as ``__main__``: its file, its arguments, and its forks."""

from __future__ import annotations

import os
import sys

import pytest

from ddp_perf.core.subject import ScriptRun
from ddp_perf.errors import ScriptError
from ddp_perf.worker.script.run import become_main, run_as_main, script_file


@pytest.fixture(autouse=True)
def own_interpreter_state(monkeypatch):
    """Undo what a script's process never does."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "argv", [*sys.argv])


def run_of(script, *args):
    return ScriptRun(script=script, args=args, samples=1)


def run(script, root, *args):
    of = run_of(script, *args)
    file = script_file(of, [str(root)])
    become_main(of, file)
    run_as_main(of, file)


def test_a_script_sees_what_python_gives_it(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "neighbour_of_it.py").write_text("VALUE = 3\n")
    (tmp_path / "sub" / "train.py").write_text(
        "import sys, __main__, neighbour_of_it\n"
        "assert __name__ == '__main__' and __main__.__dict__ is globals()\n"
        "assert sys.argv == [__file__, '--epochs', '2'] and sys.path[0] in __file__\n"
        "raise SystemExit(neighbour_of_it.VALUE)\n"
    )

    with pytest.raises(SystemExit) as end:
        run("sub/train.py", tmp_path, "--epochs", "2")

    assert end.value.code == 3


def test_a_module_may_import_its_neighbours_by_relative_names(tmp_path):
    package = tmp_path / "own_package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "neighbour.py").write_text("VALUE = 4\n")
    (package / "train.py").write_text(
        "import sys\nfrom .neighbour import VALUE\n"
        "assert __name__ == '__main__' and sys.argv == [__file__, 'x']\n"
        "raise SystemExit(VALUE)\n"
    )
    sys.path.insert(0, str(tmp_path))  # as the rank does with the project's root

    with pytest.raises(SystemExit) as end:
        run("own_package.train", tmp_path, "x")

    assert end.value.code == 4


def test_a_script_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ScriptError, match=r"there is no file train\.py in .*; give|there is no"):
        script_file(run_of("train.py"), [str(tmp_path)])


@pytest.mark.parametrize("module", ["no_such_package.train", "no_such_module", "ddp_perf.nothing"])
def test_a_module_that_is_not_there_is_refused(module):
    with pytest.raises(ScriptError, match=f"there is no module {module}"):
        become_main(run_of(module), None)


def test_an_import_that_fails_in_a_package_is_its_own_error(tmp_path):
    (tmp_path / "broken_package").mkdir()
    (tmp_path / "broken_package" / "__init__.py").write_text("import no_such_dependency\n")
    sys.path.insert(0, str(tmp_path))

    with pytest.raises(ModuleNotFoundError, match="no_such_dependency"):
        become_main(run_of("broken_package.train"), None)


@pytest.mark.parametrize(
    ("end", "code"), [("", 0), ("raise SystemExit(5)", 5), ("raise SystemExit('x')", 1), ("1/0", 1)]
)
def test_a_fork_of_a_script_ends_with_the_script(tmp_path, capfd, end, code):
    """It must not report as if it were the rank."""
    (tmp_path / "train.py").write_text(
        "import os\n"
        "child = os.fork()\n"
        f"if not child:\n    {end or 'pass'}\n"
        "else:\n"
        "    raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    process = os.getpid()

    with pytest.raises(SystemExit) as ended:
        run("train.py", tmp_path)

    assert os.getpid() == process
    assert ended.value.code == code
    assert ("ZeroDivisionError" in capfd.readouterr().err) == (end == "1/0")
