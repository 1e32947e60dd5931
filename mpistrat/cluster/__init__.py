"""Ranks, nodes, devices and roles of this process; only here COMM_WORLD is named.

`launcher/` has what the launcher announced, `mpi_start/` what happens until MPI runs, `devices/`
GPUs and cores, `resolvers/` the roles, and `slurm/` the variables of a job step.
"""
