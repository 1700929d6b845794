"""Baseline files: read them, save to them, write them so that a review reads well."""
