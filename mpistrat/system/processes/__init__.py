"""Processes: what the OS says of one, a command with its children, names for this one."""
