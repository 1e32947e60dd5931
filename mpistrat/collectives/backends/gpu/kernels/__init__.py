"""Kernels on GPUs (kernels/cuda): compiled when they are first used, launched on CuPy's stream."""
