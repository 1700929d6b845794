"""Baseline files: reading, saving sessions to them, and a format that is easy to review."""
