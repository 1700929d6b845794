"""This machine: its GPUs, its host, its leases and what disturbs a measurement."""
