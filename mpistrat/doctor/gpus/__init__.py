"""Facts about GPUs from the libraries of their drivers: neither a toolkit nor CuPy is needed."""
