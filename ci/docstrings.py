"""Check that docstrings are sentences: ``python ci/docstrings.py``.

A function's docstring begins with a verb ("Return the …"). The docstring of a module, a class or
a property begins with its subject, never with a preposition or a relative pronoun. Exit code 1
if one does not.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
# A function does something: its docstring begins with what it does. Add a verb when you need one.
VERBS = frozenset(
    """
    Accept Acknowledge
    Add Adjust Agree Allow Analyse Answer Append Apply Approximate Ask Assert Assign Average
    Begin Bind Block Bound Build Calculate Calibrate Call Cancel Capture Change Check Choose Close
    Collect Combine Compare Compile Compress Compute Confirm Connect Convert Copy Correct Count
    Create Cut Decide Decode Decorate Describe Detect Die Divide Draw Drop Embed Encode End Enter
    Estimate Evaluate Exclude Exit Explain Extend Fail Fill Find Fit Fold Follow Forget Format
    Gather
    Give Go Group Guess Hand Handle Hold Identify Ignore Import Increase Insert Install Interleave
    Interpolate Invert Iterate Join Judge Keep Kill Label Launch Lease Leave Let Limit List Load
    Lock Log Look Lower Make Map Mark Match Measure Merge Mirror Move Multiply Name Normalise Note
    Notice
    Observe Open Order Pad Parse Pass Patch Pin Place Plan Plot Point Poll Prefer Prepare Print
    Process Profile Promote Prove Put Raise Read Rebuild Receive Record Reduce Refuse Register
    Release Remember Remove Rename Render Repeat Replace Replay Report Reset Resolve Restore Return
    Round Run Sample Save Say Scale Search Select Send Separate Serve Set Share Show Shorten Shuffle
    Simulate Skip Slow Solve Sort Split Square Squeeze Start State Stop Store Sum Summarise
    Supervise Swap Switch Take Terminate Test Train Translate Trim Try Turn Undo Unlock Update Use
    Validate Wait Walk Warm Warn Watch Weigh Wrap Write Yield
    """.split()  # noqa: SIM905 – a list would take a line a word
)
FRAGMENTS = frozenset(
    """
    Of By What Whether How Why Where When Which Who Whose As From With To For In On At So That Those
    Such Over Against Around After Before Between Until Under Beside Through Without Within And Or
    But Told Held Kept None None: Half
    """.split()  # noqa: SIM905 – a list would take a line a word
)


def main() -> int:
    """Print each docstring that begins wrongly, and the count."""
    wrong = [line for path in sorted(ROOT.glob("ddp_perf/**/*.py")) for line in faults(path)]
    print(*wrong, sep="\n")
    print(
        f"docstrings: {len(wrong)} begin with a fragment" if wrong else "docstrings: all begin well"
    )
    return int(bool(wrong))


def faults(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        text = ast.get_docstring(node)
        if text and not _begins_well(node, text):
            line = getattr(node, "lineno", 1)
            yield f"{path.relative_to(ROOT)}:{line}: {text.splitlines()[0]}"


def _begins_well(node: ast.AST, text: str) -> bool:
    first = text.split()[0]
    if isinstance(node, ast.FunctionDef) and not _is_value(node):
        return first.rstrip(",.:;") in VERBS
    return first not in FRAGMENTS


def _is_value(function: ast.FunctionDef) -> bool:
    """Return whether a function reads as a value: a property or a fixture."""
    names = {ast.unparse(decorator).partition("(")[0] for decorator in function.decorator_list}
    return bool(names & {"property", "cached_property", "functools.cached_property"}) or any(
        name.endswith(("fixture", ".setter")) for name in names
    )


if __name__ == "__main__":
    sys.exit(main())
