"""Kernels and ranges of CUDA, ROCm and several versions of torch are classified by name."""

from __future__ import annotations

import pytest

from ddp_perf.traces.timeline import device_kind, is_host_collective, is_host_work, step_number


@pytest.mark.parametrize(
    "name",
    [
        "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)",
        "ncclKernel_Broadcast_RING_LL_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)",
        "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)",
        "ncclSymkDevKernel_AllGather_LLMC(ncclSymkDevWorkArgs)",
        "void rccl_main_kernel(ncclDevComm*)",
        "mscclKernel_Sum_float_Simple_false(ncclDevComm*)",
        "void c10d::symmetric_memory::two_shot_all_reduce_kernel<float, 16>(float**)",
        "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(RankData*)",
    ],
)
def test_kernels_of_collectives_are_communication(name):
    assert device_kind("kernel", name) == "communication"


@pytest.mark.parametrize(
    ("category", "name", "kind"),
    [
        ("kernel", "volta_sgemm_128x32_nt", "computation"),
        ("Kernel", "volta_sgemm_128x32_nt", "computation"),  # before torch 1.12
        ("kernel", "void at::native::batch_norm_SyncBatchNorm<float>()", "computation"),
        ("kernel", "Cijk_Ailk_Bljk_SB_MT64x64x16", "computation"),  # rocBLAS
        ("gpu_memcpy", "Memcpy DtoH (Device -> Pinned)", "memory"),
        ("gpu_memset", "Memset (Device)", "memory"),
        ("kernel", "__amd_rocclr_fillBufferAligned", "memory"),
        ("cuda_sync", "Stream Sync", None),
        ("gpu_user_annotation", "nccl:all_reduce", None),
        ("cpu_op", "aten::mm", None),
        (None, "process_name", None),
    ],
)
def test_other_events_of_a_gpu_have_their_kind(category, name, kind):
    assert device_kind(category, name) == kind


def test_collective_in_the_arguments_makes_any_kernel_communication():
    assert device_kind("kernel", "fused_thing", is_collective=True) == "communication"


@pytest.mark.parametrize(
    ("name", "is_one"),
    [("gloo:all_reduce", True), ("mpi:bcast", True), ("nccl:all_reduce", False), ("gloo", False)],
)
def test_only_a_backend_of_the_host_is_a_host_collective(name, is_one):
    assert is_host_collective(name) == is_one


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("aten::mm", True),
        ("mkldnn::_linear_pointwise", True),
        ("cpp_fused_add_relu_0", True),
        ("autograd::engine::evaluate_function: AddmmBackward0", False),
        ("AddmmBackward0", False),
        ("torch::autograd::AccumulateGrad", False),
        ("c10d::allreduce_", False),
        ("_c10d_functional::wait_tensor", False),
    ],
)
def test_only_operators_that_compute_are_host_work(name, is_one):
    assert is_host_work("cpu_op", name) == is_one


@pytest.mark.parametrize(
    ("name", "number"), [("ProfilerStep#12", 12), ("ProfilerStep*", None), ("Step#1", None)]
)
def test_step_number_is_read_from_the_annotation(name, number):
    assert step_number(name) == number
