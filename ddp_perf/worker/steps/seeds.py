"""The seeds of a rank's generators of random numbers."""

from __future__ import annotations

import contextlib
import random

import torch

_SEED = 0  # the same on every rank: the plain module and DDP start from the same parameters


def seed_all() -> None:
    """Set the seed of every generator that the user's code may use.

    The ranks of a session are forks of one server, and would share its state. Another session has
    another server, and would train on other data.
    """
    torch.manual_seed(_SEED)
    random.seed(_SEED)
    with contextlib.suppress(ModuleNotFoundError):  # torch runs without it
        import numpy

        numpy.random.seed(_SEED)  # the generator that most code uses
