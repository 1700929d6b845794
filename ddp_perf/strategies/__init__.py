"""Strategies of parallel training: none, DDP and FSDP2, with their options."""
