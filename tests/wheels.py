"""Wheels of a pure package, made by hand: pip installs them without a network."""

from __future__ import annotations

import zipfile
from pathlib import Path


def write_wheel(directory: Path, name: str, version: str, requires: str | None = None) -> None:
    """Write a wheel with one module ``name``, which has its version as VERSION."""
    information = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    if requires is not None:
        metadata += f"Requires-Dist: {requires}\n"
    files = {
        f"{name}.py": f"VERSION = {version!r}\n",
        f"{information}/METADATA": metadata,
        f"{information}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},,\n" for path in [*files, f"{information}/RECORD"])
    directory.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(directory / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        for path, text in {**files, f"{information}/RECORD": record}.items():
            wheel.writestr(path, text)
