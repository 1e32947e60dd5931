"""One rank drives TensorFlow's strategy; the others get its results."""
