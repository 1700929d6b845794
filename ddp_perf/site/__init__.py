"""Static pages of all sessions in a history: `ddp-perf site`."""
