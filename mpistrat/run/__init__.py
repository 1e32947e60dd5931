"""Run a program written for tf.distribute on MPI ranks, unchanged: ``mpistrat run``."""
