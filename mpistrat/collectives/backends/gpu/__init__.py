"""Collectives of arrays on GPUs: one backend, which chooses what carries the data (choice.py)."""
