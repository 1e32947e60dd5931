"""The tests in this folder have jobs of ranks of their own, in which TensorFlow has GPUs."""
