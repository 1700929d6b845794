"""Launches as Jobs of Kubernetes, through kubectl."""
