"""Communication hooks of DDP."""
