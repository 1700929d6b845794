"""What the commands print of baselines, a comparison, the machine, a series, an unjudged suite."""
