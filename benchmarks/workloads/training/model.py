"""The model: four linear layers."""

import torch
from torch import nn

WIDTH, CLASSES = 512, 10


class Net(nn.Module):
    """Three hidden layers of one width, and the layer of the classes."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH)
        self.second = nn.Linear(WIDTH, WIDTH)
        self.third = nn.Linear(WIDTH, WIDTH)
        self.last = nn.Linear(WIDTH, CLASSES)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.first(features))
        hidden = torch.relu(self.second(hidden))
        hidden = torch.relu(self.third(hidden))
        return self.last(hidden)
