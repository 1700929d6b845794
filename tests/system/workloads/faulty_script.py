"""The faults of faulty.py in a training script, which trains until it is ended."""

from __future__ import annotations

import argparse
import itertools

import torch
import torch.distributed as dist
from faulty import strike  # type: ignore[import-not-found]  # of the same directory
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, required=True)
parser.add_argument("--fault", required=True)
parser.add_argument("--at-step", type=int, required=True)
parser.add_argument("--noted")
asked = parser.parse_args()

dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(16, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in itertools.count(1):
    if step == asked.at_step and dist.get_rank() == 1:
        strike(asked.fault, model, asked.noted)
    optimizer.zero_grad()
    model(torch.randn(asked.batch_size, 16)).square().mean().backward()
    optimizer.step()
