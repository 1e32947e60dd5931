"""Coordinate the ranks that save or restore together: shares of the writing, and errors."""
