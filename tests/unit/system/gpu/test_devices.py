"""Traces of an NVIDIA GPU, as the kernel and a container show them."""

from __future__ import annotations

import pytest

from ddp_perf.system.gpu.nvml import nvidia_device

BUS = "sys/bus/pci/devices/0000:3b:00.0"


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({"proc/driver/nvidia/version": ""}, "a driver is loaded"),
        ({"dev/nvidia1": "", "dev/nvidiactl": ""}, "there is /dev/nvidia1"),
        (
            {f"{BUS}/vendor": "0x10de\n", f"{BUS}/class": "0x030200\n"},
            "there is an NVIDIA GPU at 0000:3b:00.0",
        ),
        # A switch of NVIDIA's, a GPU of another vendor, and the nodes of the driver alone.
        ({f"{BUS}/vendor": "0x10de\n", f"{BUS}/class": "0x068000\n"}, None),
        ({f"{BUS}/vendor": "0x1002\n", f"{BUS}/class": "0x030000\n"}, None),
        ({"dev/nvidiactl": "", "dev/nvidia-uvm": ""}, None),
        ({}, None),
    ],
)
def test_an_nvidia_gpu_is_found_without_its_driver(tmp_path, files, found):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    assert nvidia_device(tmp_path) == found
