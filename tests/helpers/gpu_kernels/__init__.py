"""The GPU kernels on the host: arguments, instances and checks against NumPy."""
