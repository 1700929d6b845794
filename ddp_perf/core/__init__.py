"""Frozen values that every layer shares. No I/O and no torch."""
