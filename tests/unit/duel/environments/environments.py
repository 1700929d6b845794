"""Small environments: distributions as an interpreter lists them, and on disk."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

from ddp_perf.core.verdict import DuelOutcome, PairedVerdict
from ddp_perf.duel.inventory import Distribution, Inventory


def make_distribution(name, version="1.0", *, site="/a", requires=(), files=None):
    own = f"{name}-{version}.dist-info"
    files = (f"{name}/__init__.py",) if files is None else files
    return Distribution(
        name=name,
        version=version,
        location=site,
        files=(*files, f"{own}/METADATA"),
        requires=tuple(requires),
    )


def make_inventory(*distributions, python="3.11.2", abi="cpython-311"):
    by_name = {one.name: one for one in distributions}
    return Inventory(python=python, abi=abi, distributions=by_name)


def install(site: Path, name: str, version: str, code: str, *, requires=()) -> None:
    """Write a pure-Python package with its metadata and RECORD, as pip does, without pip."""
    metadata = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"]
    metadata += [f"Requires-Dist: {one}\n" for one in requires]
    files = {
        f"{name}/__init__.py": code,
        f"{name}-{version}.dist-info/METADATA": "".join(metadata),
    }
    record = f"{name}-{version}.dist-info/RECORD"
    rows = []
    for path, text in files.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_text(text, "utf-8")
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=")
        rows.append(f"{path},sha256={digest.decode()},{len(text.encode())}\n")
    (site / record).write_text("".join([*rows, f"{record},,\n"]), "utf-8")


def make_verdict(outcome=DuelOutcome.SLOWER, ratio=1.1):
    interval = (ratio - 0.02, ratio + 0.02)
    return PairedVerdict(outcome=outcome, reason="because", pairs=6, ratio=ratio, interval=interval)
