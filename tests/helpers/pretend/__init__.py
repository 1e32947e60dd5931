"""Stand-ins for what the machine that runs the tests lacks: GPUs, TPUs, other nodes."""
