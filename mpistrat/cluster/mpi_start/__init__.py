"""The start of MPI: when it may begin, which ranks do not come to it, and deadlines for it."""
