"""TensorFlow's private modules; no file outside this folder touches them."""
