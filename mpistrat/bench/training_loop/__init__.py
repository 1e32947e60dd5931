"""A training loop on all ranks, and where the time of its steps goes; for several cases."""
