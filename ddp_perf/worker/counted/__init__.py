"""Exact counts of a step: collectives, FLOPs, parameters."""
