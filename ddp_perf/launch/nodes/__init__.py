"""Launches on several nodes, or on one, through an engine that starts a process on each node."""
