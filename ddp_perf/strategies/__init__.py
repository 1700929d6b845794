"""How a model is trained in parallel: none, DDP, FSDP2, and their options."""
