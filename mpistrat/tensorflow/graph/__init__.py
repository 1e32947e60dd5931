"""Collectives in TensorFlow's graphs: operations, their order, XLA."""
