"""Ranks, nodes, devices and roles of this process; only here COMM_WORLD is named."""
