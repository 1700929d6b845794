"""The product `ddp-perf trace`: analyse torch.profiler's traces of several ranks."""
