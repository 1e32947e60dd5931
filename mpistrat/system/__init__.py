"""Services of the operating system: logs, locks, files, compilers, other processes."""
