"""Write results in the formats of other programs: ``mpistrat bench export``."""
