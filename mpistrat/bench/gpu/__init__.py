"""The parts of the case ``gpu``: kernels against a copy, all-reduce against its bound."""
