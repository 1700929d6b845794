"""The product `ddp-perf predict`: fit scaling curves, predict other world sizes."""
