"""Counters of the kernel and of NVML, read before and after the timed steps."""
