"""Find the best setting of a case by successive halving over launches side by side."""
