"""``python -m ddp_perf.bench``: document 001's benchmark, under torchrun or alone."""
