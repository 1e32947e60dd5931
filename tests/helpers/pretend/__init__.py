"""Stand-ins for what the test machine lacks: TPUs, their API, nodes (GPUs: tests/gpu/pretend)."""
