"""A training script as it is: run as ``__main__``, and measured through torch's own hooks."""
