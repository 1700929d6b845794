"""Import what a session imports late, once: pytester forgets it after each session in a process.

Otherwise each inner session imports reports, altair and SQLAlchemy anew, and numpy refuses to.
"""

from __future__ import annotations

import importlib
from pathlib import Path

import psycopg  # noqa: F401
import sqlalchemy.dialects.sqlite  # noqa: F401

import ddp_perf

_PACKAGE = Path(ddp_perf.__file__).parent
_OF_RANKS = {"bench", "strategies", "supervisor", "torch_compat", "worker", "workloads"}
_OF_USERS = {"example_project"}

for _file in _PACKAGE.rglob("*.py"):
    _parts = _file.relative_to(_PACKAGE).with_suffix("").parts
    if not (_OF_RANKS | _OF_USERS) & set(_parts):
        importlib.import_module(".".join(("ddp_perf", *_parts)).removesuffix(".__init__"))
