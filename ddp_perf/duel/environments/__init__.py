"""Find which package or variable makes one environment slower than another."""
