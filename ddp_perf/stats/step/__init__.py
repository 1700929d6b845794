"""The terms of a step: what they are, and which of them changed."""
