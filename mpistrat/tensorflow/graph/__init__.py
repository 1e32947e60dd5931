"""Collectives in TensorFlow's graphs: native operations, their order, XLA."""
