"""Checks of the network: interfaces, what NCCL uses, latency and bandwidth."""
