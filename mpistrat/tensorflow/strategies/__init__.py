"""TensorFlow's strategies on MPI ranks, a file each, and the members that they share."""
