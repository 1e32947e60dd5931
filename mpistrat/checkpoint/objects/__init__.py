"""The saved objects, the names that lead to them, and their parts."""
