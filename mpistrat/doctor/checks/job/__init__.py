"""Checks of what the system and Slurm allow the job: limits, time, and what happens at its end."""
