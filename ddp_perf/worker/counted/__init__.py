"""What a step does, counted exactly: collectives, FLOPs, parameters."""
