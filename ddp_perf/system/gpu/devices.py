"""NVIDIA's GPUs as the kernel shows them, whether a driver can use them or not."""

from __future__ import annotations

from pathlib import Path

_NVIDIA = "0x10de"  # the vendor's PCI id
_DISPLAY = "0x03"  # the PCI class of GPUs, also of those without a display


def nvidia_device(root: Path = Path("/")) -> str | None:
    """Return a trace of an NVIDIA GPU, as the end of a sentence, or None if there is none."""
    if (root / "proc/driver/nvidia/version").exists():
        return "a driver is loaded"
    for node in _entries(root / "dev"):
        if node.name.startswith("nvidia") and node.name[6:7].isdigit():
            return f"there is /dev/{node.name}"
    for device in _entries(root / "sys/bus/pci/devices"):
        if _text(device / "vendor") == _NVIDIA and _text(device / "class").startswith(_DISPLAY):
            return f"there is an NVIDIA GPU at {device.name}"
    return None


def _entries(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except OSError:  # it is not there, or nobody may read it
        return []


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""
