"""GPUs for tests: which there are, communicators and strategies on them."""
