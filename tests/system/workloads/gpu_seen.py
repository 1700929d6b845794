"""A workload that asks torch for GPUs at its import and in each step. It must find none."""

from __future__ import annotations

import os
from dataclasses import replace

import torch

from ddp_perf.workloads import mlp

_SEEN_AT_IMPORT = torch.cuda.is_available()


def build(context):
    workload = mlp.build(context, input_dim=16, hidden_dim=16, output_dim=4, num_layers=2)

    def loss(module, batch):
        assert not _SEEN_AT_IMPORT
        assert os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] == "1"
        assert not torch.cuda.is_available()
        return workload.loss(module, batch)

    return replace(workload, loss=loss)
