"""Checks of GPUs: one rank each, near its CPUs, healthy, and MPI that knows of them."""
