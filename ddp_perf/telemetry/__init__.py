"""Telemetry: the counters of a rank around its timed steps, and what they show."""
