"""Variables whose rows are divided among several parts: made, indexed, looked up."""
