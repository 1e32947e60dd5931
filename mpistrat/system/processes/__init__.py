"""Processes: which ones live, what a group of them is told, and the name of this one."""
