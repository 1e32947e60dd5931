"""Find what Horovod's sources need; each module looks for one thing and says how to get it."""
