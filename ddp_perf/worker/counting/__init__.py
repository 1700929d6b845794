"""Exact counts of a step: operations, collectives, memory, and their places in the source."""
