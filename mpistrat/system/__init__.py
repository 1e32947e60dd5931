"""The operating system: logs, files, locks, compilers, processes, network, CPUs, program end."""
