"""Checkpoints that all ranks save and restore together, and a plain file for comparison."""
