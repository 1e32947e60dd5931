"""Tests here share jobs of their own: elsewhere TensorFlow has four CPUs in each process."""
