"""Modules, functions and scripts of a user's project that suite files name.

They must be there, and an option refuses them.

None of them is imported, since that would import torch. They are found and parsed instead, and what
a source leaves open is accepted.
"""

from __future__ import annotations

import ast
import importlib.util
import pkgutil
import tokenize
import warnings
from collections.abc import Iterator, Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from ddp_perf.config.cases import script_run
from ddp_perf.config.suite import ScriptSuite, Suite, TrainingSuite
from ddp_perf.config.yaml_file import TYPE_NAMES
from ddp_perf.core.case import Scalar
from ddp_perf.core.subject import BY_OPTIMIZER, ScriptRun
from ddp_perf.errors import ConfigError, did_you_mean

_UNKNOWABLE = {"*", "__getattr__"}  # a module that binds one may have any name
# The values that a simple annotation admits.
_ADMITTED = {"bool": (bool,), "int": (int,), "float": (float, int), "str": (str,)}


def refuse_user_code(suite: Suite, option: str) -> None:
    """Raise ConfigError for the field by which a suite brings code of its own to its ranks.

    ``option`` is what refuses it.
    """
    named = []
    if isinstance(suite, ScriptSuite):
        named.append("script")
    if isinstance(suite, TrainingSuite):
        named += ["workload"] if ":" in suite.workload else []
        named += [f"techniques.{name}.env" for name, of in suite.techniques.items() if "env" in of]
    # A variable, as LD_PRELOAD or NCCL_NET_PLUGIN, may name a library that is loaded.
    named += ["env"] if suite.env else []
    if named:
        raise ConfigError(
            f"{named[0]}: {option} refuses it, since it brings code of the user to the ranks; leave"
            " the suite or the option out"
        )


def find_module(module: str, import_paths: Sequence[str]) -> ModuleSpec | None:
    """Find a module. ``importlib.util.find_spec`` would import the parents of a submodule."""
    top, *rest = module.split(".")
    try:
        spec = PathFinder.find_spec(top, list(import_paths)) or importlib.util.find_spec(top)
    except ValueError:  # `__main__`, or an empty name
        return None
    for name in rest:
        if spec is None:
            return None
        # Only the last name: the parents of a dotted name would be searched in sys.modules.
        spec = PathFinder.find_spec(name, list(spec.submodule_search_locations or []))
    return spec


def _spec(field: str, module: str, folders: Sequence[str], remedy: str) -> ModuleSpec:
    """Find a module. Raises ConfigError with the nearest module beside it, or else the remedy."""
    if (spec := find_module(module, folders)) is not None:
        return spec
    parent, _, _ = module.rpartition(".")
    package = find_module(parent, folders) if parent else None
    beside = folders if not parent else (package and package.submodule_search_locations) or ()
    names = [name for _, name, _ in pkgutil.iter_modules(list(beside))]
    near = did_you_mean(module, [f"{parent}.{name}" if parent else name for name in names])
    raise ConfigError(f"{field}: there is no module {module} in {folders[0]}{near or remedy}")


def _source(spec: ModuleSpec) -> Path | None:
    """Return the file of a module; None if it is not Python source."""
    return Path(spec.origin) if spec.origin is not None and spec.origin.endswith(".py") else None


def _parsed(field: str, source: Path) -> ast.Module:
    """Parse a Python file. Raises ConfigError with the field and the line if it cannot be parsed.

    Python's warnings about it are ignored: the ranks show them.
    """
    try:
        with tokenize.open(source) as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(file.read())
    except SyntaxError as error:
        if error.lineno is None:  # of its encoding
            raise ConfigError(f"{field}: {source} is not Python source: {error.msg}") from None
        raise ConfigError(f"{field}: {source}:{error.lineno}: {error.msg}") from None
    except (ValueError, OSError) as error:  # a NUL byte, bytes that are not text, no permission
        raise ConfigError(f"{field}: {source} is not Python source: {error}") from None


def _statements(field: str, module: str, name: str, source: Path) -> list[ast.stmt]:
    """Return the statements of a module that may bind a name. Raises ConfigError if none does."""
    bound = list(_bindings(_parsed(field, source)))
    names = {other for other, _ in bound}
    if name not in names and not names & _UNKNOWABLE:
        raise ConfigError(f"{field}: {module!r} defines no {name!r}{did_you_mean(name, names)}")
    return [statement for other, statement in bound if other == name]


def _bindings(block: ast.AST) -> Iterator[tuple[str, ast.stmt]]:
    """Yield each name that a block may bind, with the statement that does."""
    for child in ast.iter_child_nodes(block):
        match child:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield child.name, child
            case ast.Import() | ast.ImportFrom():
                yield from ((alias.asname or alias.name, child) for alias in child.names)
            case ast.Assign() | ast.AnnAssign():
                names = (node for node in ast.walk(child) if isinstance(node, ast.Name))
                yield from ((name.id, child) for name in names if isinstance(name.ctx, ast.Store))
            case ast.stmt() | ast.ExceptHandler() | ast.match_case():  # what their blocks bind
                yield from _bindings(child)


def check_script_file(suite: ScriptSuite, import_paths: Sequence[str]) -> None:
    """Raise ConfigError if the script, or the function that ends a step, is not there.

    ``import_paths`` is where ranks search first; without it, they search this directory.
    """
    run = script_run(suite, suite.world_sizes[0], suite.batch_sizes[0])
    roots = import_paths or [str(Path.cwd())]
    file = _module_file(run.script, roots) if run.is_module else _file(run.script, roots)
    if file is not None:
        _parsed("script", file)
    if run.steps_by != BY_OPTIMIZER:
        _check_steps_by(run, file, roots)


def _file(script: str, roots: Sequence[str]) -> Path:
    paths = [Path(root) / script for root in roots]
    for path in paths:
        if path.is_file():
            return path
    if any(path.is_dir() for path in paths):
        raise ConfigError(f"script: {script} is a folder; name a file of it")
    near = [path.name for folder in {path.parent for path in paths} for path in folder.glob("*.py")]
    raise ConfigError(
        f"script: there is no file {script} in {roots[0]}"
        f"{did_you_mean(Path(script).name, near) or '; give its path from there on'}"
    )


def _module_file(module: str, roots: Sequence[str]) -> Path | None:
    """Return the file that ``python -m module`` runs; None if it is not Python source."""
    if any((Path(root) / module).is_file() for root in roots):
        raise ConfigError(f"script: {module} is not a file of Python: its name must end with .py")
    remedy = "; name a module that can be imported, or give a file, as in train.py"
    spec = _spec("script", module, roots, remedy)
    if spec.submodule_search_locations is None:
        return _source(spec)
    main = find_module(f"{module}.__main__", roots)  # of a package
    if main is None:
        raise ConfigError(
            f"script: the package {module} has no __main__.py; name one of its modules"
        )
    return _source(main)


def _check_steps_by(run: ScriptRun, script: Path | None, roots: Sequence[str]) -> None:
    """Check ``module:function``, whose function may be a method: only its first name is sought."""
    module, _, function = run.steps_by.partition(":")
    folders = [*roots] if script is None else [str(script.parent), *roots]
    source = None
    if module != "__main__":
        remedy = "; name a module that the script imports"
        source = _source(_spec("steps_by", module, folders, remedy))
    is_script = source is not None and script is not None and source.resolve() == script.resolve()
    if module == "__main__" or is_script:
        raise ConfigError(
            f"steps_by: {run.steps_by} is of the script itself, which is not there before it runs;"
            " name a function of a module that it imports"
        )
    if source is not None:
        _statements("steps_by", module, function.partition(".")[0], source)


def check_target(target: str, arguments: Mapping[str, Scalar], import_paths: Sequence[str]) -> None:
    """Check the target, and raise ConfigError if the module or the function does not exist.

    ConfigError is also raised if the function cannot be called with a context and ``arguments``, or
    if the annotation of one of them excludes its value. ``import_paths`` is where ranks search
    first.
    """
    module, function = target.split(":")
    spec = find_module(module, import_paths)
    if spec is None:
        raise ConfigError(
            f"workload: no module named {module!r}; it must be importable from pytest's root"
            " directory, or from the pythonpath of its settings"
        )
    if spec.loader is None or spec.origin is None:
        raise ConfigError(f"workload: {module!r} is a folder of modules; name one of them")
    source = _source(spec)
    statements = [] if source is None else _statements("workload", module, function, source)
    if len(statements) == 1:
        _check_callable(target, statements[0], arguments)


def _check_callable(target: str, statement: ast.stmt, arguments: Mapping[str, Scalar]) -> None:
    """Check the only statement that binds the target. A decorator may change what it binds."""
    if isinstance(statement, ast.AsyncFunctionDef):
        raise ConfigError(f"workload: {target} is a coroutine; make it a plain function")
    value = statement.value if isinstance(statement, ast.Assign | ast.AnnAssign) else None
    if isinstance(value, ast.Constant | ast.List | ast.Tuple | ast.Dict | ast.Set):
        raise ConfigError(f"workload: {target} is not a function")
    if isinstance(statement, ast.FunctionDef) and not statement.decorator_list:
        _check_signature(target, statement.args, arguments)


def _check_signature(
    target: str, signature: ast.arguments, arguments: Mapping[str, Scalar]
) -> None:
    """Check that the ranks can call ``target(context, **arguments)``."""
    positional = [*signature.posonlyargs, *signature.args]
    if not positional and signature.vararg is None:
        raise ConfigError(f"workload: {target} must take a BuildContext as its first argument")
    by_name = [one for one in [*signature.args, *signature.kwonlyargs] if one not in positional[:1]]
    names = {argument.arg for argument in by_name}
    unknown = sorted(arguments.keys() - names)
    if unknown and signature.kwarg is None:
        raise ConfigError(
            f"model.{unknown[0]}: {target} takes no such argument{did_you_mean(unknown[0], names)}"
        )
    needed = positional[1 : len(positional) - len(signature.defaults)]
    keywords = zip(signature.kwonlyargs, signature.kw_defaults, strict=True)
    needed += [argument for argument, default in keywords if default is None]
    for argument in needed:
        if argument.arg not in arguments:
            raise ConfigError(f"model.{argument.arg}: required by {target}, but missing")
    for argument in by_name:
        if argument.annotation is not None and argument.arg in arguments:
            _check_value(target, argument.arg, argument.annotation, arguments[argument.arg])


def _check_value(target: str, name: str, annotation: ast.expr, value: Scalar) -> None:
    """Check a value against its annotation, if that is made of simple types only."""
    expected = _simple_types(annotation)
    if not expected or any(type(value) in _ADMITTED[kind] for kind in expected):
        return
    names = " or ".join(TYPE_NAMES[kind] for kind in expected)
    raise ConfigError(f"model.{name}: {target} expects {names}, got {value!r}")


def _simple_types(annotation: ast.expr) -> list[str]:
    """Return the types of an annotation such as ``int | None``; none if it has any other type."""
    match annotation:
        case ast.Name(id=name) if name in _ADMITTED:
            return [name]
        case ast.BinOp(left=left, op=ast.BitOr(), right=ast.Constant(value=None)):
            return _simple_types(left)
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            either, other = _simple_types(left), _simple_types(right)
            return [*either, *other] if either and other else []
        case ast.Subscript(value=ast.Name(id="Optional"), slice=inner):
            return _simple_types(inner)
    return []
