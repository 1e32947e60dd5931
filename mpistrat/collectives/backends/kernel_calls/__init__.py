"""Calls into the C++ kernels, for the backends that are made of them."""
