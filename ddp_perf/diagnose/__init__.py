"""Rules that turn the terms of a step into causes and advice."""
