"""Checks of the CPUs that each rank may run on, and of the threads that it starts there."""
