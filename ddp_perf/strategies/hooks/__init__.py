"""DDP's communication hooks."""
