"""A performance regression suite for data-parallel training in PyTorch, run with pytest."""
