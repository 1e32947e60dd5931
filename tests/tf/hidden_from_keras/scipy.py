"""Stands before SciPy, which Keras imports where it is installed; see ../conftest.py."""

raise ImportError("SciPy is hidden from these tests")
