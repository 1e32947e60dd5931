"""The job that is examined: its ranks, its launcher, its start, and messages with a deadline."""
