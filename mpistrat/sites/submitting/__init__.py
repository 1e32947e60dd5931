"""Submit scripts to Slurm, and follow their jobs until they end."""
