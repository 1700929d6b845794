"""A workload that sets its precision with the switches of torch 2.9 and newer."""

from __future__ import annotations

import torch

from ddp_perf.workloads import mlp


def build(context):
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    torch.backends.cudnn.conv.fp32_precision = "tf32"  # type: ignore[attr-defined]
    return mlp.build(context, input_dim=16, hidden_dim=16, output_dim=4, num_layers=2)
