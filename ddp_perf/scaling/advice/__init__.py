"""Advice for a model and a number of GPUs, from measurements and models."""
