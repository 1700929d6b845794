"""Workloads: models with their data, and the interface for a user's own."""
