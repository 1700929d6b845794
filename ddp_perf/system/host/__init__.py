"""The host's cores, processes and control groups, through the kernel's files."""
