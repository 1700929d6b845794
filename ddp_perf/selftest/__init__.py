"""The product `ddp-perf selftest`: measure what the gate finds on this machine."""
