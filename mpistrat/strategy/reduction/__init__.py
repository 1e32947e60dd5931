"""Combine the values of replicas: within the rank first, then over the ranks."""
