"""Benchmarks: ``python -m mpistrat.bench CASE`` under mpirun; one case a file."""
