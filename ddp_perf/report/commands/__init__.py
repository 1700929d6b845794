"""Reports of commands: baselines, a comparison, the machine, a judged series, an unjudged suite."""
