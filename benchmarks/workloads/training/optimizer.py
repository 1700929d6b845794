"""The optimizer."""

import torch


class Optimizer(torch.optim.AdamW):
    """AdamW, which counts its steps."""

    steps = 0

    def step(self, closure=None):
        self.steps += 1
        return super().step(closure)
