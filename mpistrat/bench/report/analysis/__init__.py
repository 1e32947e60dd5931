"""The numbers of a report: repeats, intervals, scaling, and what changed between two files."""
