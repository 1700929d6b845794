"""The engines: this machine, a command of the user, hosts, Slurm and Kubernetes."""
