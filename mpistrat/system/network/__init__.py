"""The network: addresses of machines, and ports held free."""
