"""Run a suite of benchmarks over growing numbers of ranks and nodes: ``mpistrat bench scale``."""
