"""Stands before scikit-learn, which Keras imports where it is installed; see ../conftest.py."""

raise ImportError("scikit-learn is hidden from these tests")
