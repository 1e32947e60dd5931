"""Helpers of the tests that need TensorFlow."""
