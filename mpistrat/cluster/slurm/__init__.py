"""Slurm: the variables of a job step, its hosts, and lists of hosts."""
