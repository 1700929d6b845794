"""GPUs as CUDA would show them, and the name of their baseline file."""

from __future__ import annotations

import itertools

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddp_perf.core.gpu import GpuLink
from ddp_perf.system.gpu.gpus import accelerator_slug, find_gpus, visible_gpus
from tests.builders import make_gpu_machine, make_gpus
from tests.recordings import RECORDED, RecordedReader
from tests.strategies import gpu_machines


@pytest.mark.parametrize(
    ("mask", "indices"),
    [
        pytest.param(None, [0, 1, 2, 3], id="unset shows all"),
        pytest.param("", [], id="empty hides all"),
        pytest.param("2", [2], id="one"),
        pytest.param("3,0", [3, 0], id="order is kept"),
        pytest.param(" 1 , 2", [1, 2], id="blanks"),
        pytest.param("0,9,1", [0], id="an invalid index ends the list"),
        pytest.param("-1,0", [], id="-1 hides all"),
        pytest.param("0,none,1", [0], id="a word ends the list"),
        pytest.param("GPU-2abc-0000", [2], id="UUID"),
        pytest.param("GPU-3,GPU-1", [3, 1], id="UUID prefixes"),
        pytest.param("1,1", [], id="a repeated index hides all"),
        pytest.param("0,1,0,2", [], id="also after others"),
        pytest.param("GPU-2abc-0000,GPU-2abc-0000", [], id="a repeated UUID hides all"),
        pytest.param("0,9,0", [], id="also after an invalid one"),
        pytest.param("0,none,0", [0], id="but not after a word"),
        pytest.param("GPU-2,GPU-2abc", [], id="two names of one"),
        pytest.param("GPU-,0", [], id="an ambiguous prefix ends the list"),
        pytest.param("GPU-7,0", [], id="an unknown UUID ends the list"),
    ],
)
def test_the_mask_is_interpreted_as_by_cuda(mask, indices):
    assert [gpu.index for gpu in visible_gpus(make_gpus(4), mask)] == indices


@pytest.mark.parametrize(
    ("name", "nvlinks", "slug"),
    [
        ("Tesla V100-PCIE-16GB", 0, "v100-pcie-16gb"),
        ("Tesla V100-SXM2-16GB", 2, "v100-sxm2-16gb"),
        ("Tesla T4", 0, "t4"),
        ("NVIDIA A100-SXM4-40GB", 12, "a100-sxm4-40gb"),
        ("NVIDIA A100-SXM4-80GB", 12, "a100-sxm4-80gb"),
        ("NVIDIA A100-PCIE-40GB", 0, "a100-pcie-40gb"),
        ("NVIDIA A100-PCIE-40GB", 12, "a100-pcie-40gb-nvlink"),
        ("NVIDIA A100 80GB PCIe", 0, "a100-80gb-pcie"),
        ("NVIDIA GeForce RTX 4090", 0, "geforce-rtx-4090"),
    ],
)
def test_a_baseline_file_is_named_by_model_and_link(name, nvlinks, slug):
    assert accelerator_slug(make_gpu_machine(name, name, nvlinks=nvlinks)) == slug


def test_a_single_gpu_is_named_by_its_model():
    assert accelerator_slug(make_gpu_machine("NVIDIA H200")) == "h200"


def test_a_mixed_machine_names_every_model_in_any_order():
    one = make_gpu_machine("Tesla T4", "NVIDIA H200")
    other = make_gpu_machine("NVIDIA H200", "Tesla T4")

    assert accelerator_slug(one) == accelerator_slug(other) == "h200+t4"
    assert one.name == "NVIDIA H200 + Tesla T4"


@pytest.mark.parametrize(
    ("name", "mask", "count", "key", "links"),
    [
        ("v100-pcie-pair", None, 2, "v100-pcie-16gb", ("NODE",)),
        ("t4-pair", None, 2, "t4", ("PHB",)),
        ("a100-pcie-bridges", None, 4, "a100-pcie-40gb", ("NV12", "SYS", "SYS")),
        ("a100-pcie-bridges", "0,1", 2, "a100-pcie-40gb-nvlink", ("NV12",)),
        ("a100-pcie-bridges", "3,2", 2, "a100-pcie-40gb", ("NODE",)),
        ("a100-pcie-bridges", "0,2,1", 3, "a100-pcie-40gb", ("SYS", "SYS")),
        ("a100-pcie-bridges", "1", 1, "a100-pcie-40gb", ()),
        ("a100-sxm4-nvswitch", None, 8, "a100-sxm4-40gb", ("NV12",) * 7),
        ("h200", None, 8, "h200", ("NV18",) * 7),
        ("a100-mig", None, 1, "a100-sxm4-40gb-mig-3g-20gb", ()),
        ("a100-mig", "MIG-22", 1, "a100-sxm4-40gb-mig-1g-5gb", ()),
        ("a100-mig", "0", 1, "a100-sxm4-40gb-mig-3g-20gb", ()),
    ],
)
def test_a_recorded_machine_has_the_key_and_links_of_its_visible_gpus(
    name, mask, count, key, links
):
    environ = {} if mask is None else {"CUDA_VISIBLE_DEVICES": mask}

    machine = find_gpus(environ, RecordedReader.of(name))

    assert len(machine.gpus) == count
    assert accelerator_slug(machine) == key
    assert machine.slowest_links == links
    assert machine.interconnect == (links[-1] if links else None)


def test_every_recorded_machine_is_replayed_above():
    """A new recording must be added to the test above."""
    assert set(RECORDED) == {
        *("v100-pcie-pair", "t4-pair", "a100-pcie-bridges", "a100-sxm4-nvswitch", "h200"),
        "a100-mig",
    }


def test_an_unknown_link_counts_as_the_slowest():
    machine = make_gpu_machine(*["Tesla T4"] * 3, pcie="SYS")
    hidden = GpuLink(first=1, second=2)
    machine = msgspec.structs.replace(machine, links=(*machine.links[:2], hidden))

    assert machine.slowest_links == ("SYS", "unknown")


@settings(max_examples=40)
@given(machine=gpu_machines(), data=st.data())
def test_a_subset_has_the_links_of_its_gpus_and_more_gpus_are_never_faster(machine, data):
    chosen = data.draw(st.permutations(machine.gpus))
    chosen = chosen[: data.draw(st.integers(1, len(chosen)))]
    mask = ",".join(str(gpu.index) for gpu in chosen)

    visible = find_gpus({"CUDA_VISIBLE_DEVICES": mask}, RecordedReader(machine))

    assert visible.gpus == tuple(chosen)
    slowness = {link.name: link.slowness for link in machine.links}
    ranks = [slowness[name] for name in visible.slowest_links]
    assert ranks == sorted(ranks)
    for count, name in enumerate(visible.slowest_links, start=2):
        pairs = itertools.combinations(chosen[:count], 2)
        assert slowness[name] == max(machine.link(*pair).slowness for pair in pairs)


@pytest.mark.parametrize("name", RECORDED)
def test_uuids_and_indices_select_the_same_gpus(name):
    gpus = RecordedReader.of(name).machine().gpus
    by_uuid = ",".join(gpu.uuid for gpu in reversed(gpus) if not gpu.mig)
    by_index = ",".join(str(gpu.index) for gpu in reversed(gpus) if not gpu.mig)

    assert visible_gpus(gpus, by_uuid) == visible_gpus(gpus, by_index)
