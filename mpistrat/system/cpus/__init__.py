"""Tell which CPU cores this process may use, and which share a NUMA domain."""
