"""Find out whether other processes still run: a probe a file."""
