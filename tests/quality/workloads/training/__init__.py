"""A small training, as a project of its own has it: ``tests/quality/settle.py`` edits it."""
