"""A workload that imports what ranks of the package itself do not."""

from __future__ import annotations


def build(context):
    import scipy  # noqa: F401
