"""A Python that finds only what a rank may import: $RANK_MODULES and the standard library."""

from __future__ import annotations

import os
import sys
from importlib.machinery import BuiltinImporter, FrozenImporter, PathFinder


class _Refusing(PathFinder):
    @classmethod
    def find_spec(cls, fullname, path=None, target=None):
        if fullname.partition(".")[0] in _ALLOWED or fullname.startswith("_sysconfigdata_"):
            return super().find_spec(fullname, path, target)
        return None


_ALLOWED = {*sys.stdlib_module_names, *os.environ["RANK_MODULES"].split()}
sys.meta_path[:] = [BuiltinImporter, FrozenImporter, _Refusing]
