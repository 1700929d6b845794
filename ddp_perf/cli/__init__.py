"""The `ddp-perf` command: one file for each subcommand."""
