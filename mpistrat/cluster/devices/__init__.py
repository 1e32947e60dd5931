"""Devices: their names, and which GPUs and cores of a node each rank uses."""
