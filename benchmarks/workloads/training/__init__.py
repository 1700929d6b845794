"""A small training, as a project of its own has it: ``benchmarks/settle.py`` edits it."""
