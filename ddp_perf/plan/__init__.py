"""The plan of a fleet: how many GPUs are gated every night, at which cost, and what that finds."""
