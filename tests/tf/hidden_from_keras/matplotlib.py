"""Stands before Matplotlib, which Keras imports where it is installed; see ../conftest.py."""

raise ImportError("Matplotlib is hidden from these tests")
