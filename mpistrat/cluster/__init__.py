"""Who am I? Ranks, nodes, devices and roles; the only place that knows COMM_WORLD."""
