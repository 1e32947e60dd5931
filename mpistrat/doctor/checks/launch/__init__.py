"""Checks of the start: launcher, MPI library and Slurm fit together."""
