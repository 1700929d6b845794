"""Slow-downs on purpose."""
