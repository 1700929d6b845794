"""Private names of torch: they are in torch_compat alone, and looked up when they are used."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import ddp_perf

PACKAGE = Path(ddp_perf.__file__).parent
COMPAT = PACKAGE / "torch_compat"
# Operators of torch's own dispatcher, not names of Python.
OPERATORS = "torch.ops."


def private_names(source: str) -> list[str]:
    """Return the private names of torch that a source imports, or reaches through a module."""
    tree = ast.parse(source)
    known: dict[str, str] = {}  # a name of this file → the name of torch
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for one in node.names:
                if one.name.split(".")[0] == "torch":
                    known[one.asname or "torch"] = one.name if one.asname else "torch"
                    found.append(one.name)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "torch":
            for one in node.names:
                known[one.asname or one.name] = f"{node.module}.{one.name}"
                found.append(f"{node.module}.{one.name}")
    found += [name for node in ast.walk(tree) if (name := _reached(node, known)) is not None]
    return [name for name in found if _is_private(name)]


def _reached(node: ast.AST, known: dict[str, str]) -> str | None:
    """Return the whole name of torch that an attribute is, or None."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.insert(0, node.attr)
        node = node.value
    if not parts or not isinstance(node, ast.Name) or node.id not in known:
        return None
    return ".".join([known[node.id], *parts])


def _is_private(name: str) -> bool:
    parts = [part for part in name.split(".") if not part.startswith("__")]
    return not name.startswith(OPERATORS) and any(part.startswith("_") for part in parts)


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("from torch._ops import OpOverload", ["torch._ops.OpOverload"]),
        ("from torch.cuda import _sleep", ["torch.cuda._sleep"]),
        ("import torch._dynamo.utils", ["torch._dynamo.utils"]),
        ("import torch\ntorch.cuda._sleep(1)", ["torch.cuda._sleep"]),
        ("from torch import nn\nx = nn.Module._call", ["torch.nn.Module._call"]),
        ("import torch.distributed as d\nd.c._f()", ["torch.distributed.c._f"]),
        ("import torch\ntorch.ops.aten._coalesce(1)\ntorch.__version__", []),
        ("import os\nos._exit(1)", []),
    ],
)
def test_the_scan_finds_private_names(source, names):
    assert private_names(source) == names


def test_private_names_of_torch_are_used_in_one_place():
    found = {
        str(path.relative_to(PACKAGE)): private_names(path.read_text(encoding="utf-8"))
        for path in PACKAGE.rglob("*.py")
        if COMPAT not in path.parents
    }
    assert {path: names for path, names in found.items() if names} == {}


def test_no_private_name_is_looked_up_when_a_rank_imports_what_it_measures_by():
    tree = ast.parse((COMPAT / "internals.py").read_text(encoding="utf-8"))
    at_import = [
        node for node in tree.body if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    sources = "\n".join(map(ast.unparse, at_import))

    assert private_names(sources) == []
