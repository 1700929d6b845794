"""Plots of the report's page, as SVG."""
