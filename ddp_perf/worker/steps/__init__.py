"""What a case repeats: a training step or a collective."""
