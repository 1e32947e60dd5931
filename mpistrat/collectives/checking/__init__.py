"""Check that all ranks call the same: before data moves, at start, and in deadlocks."""
