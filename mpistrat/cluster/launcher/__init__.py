"""The launcher: what it announced, whether that fits MPI, and what to type if it does not."""
