"""The suite is its own first user: the plugin is loaded as any project would load it."""

pytest_plugins = ["ddp_perf.plugin", "pytester"]
