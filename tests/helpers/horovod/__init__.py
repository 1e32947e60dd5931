"""Horovod for tests: the page about it, and a machine to build it on."""
