"""Find the parameters of a machine from measured times, and how sure they are."""
