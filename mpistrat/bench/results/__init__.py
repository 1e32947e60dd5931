"""The result files of benchmarks: what a line holds, and how lines are read and written."""
