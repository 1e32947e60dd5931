"""Checks of memory that is shared, temporary files, caches, and the environment's file system."""
