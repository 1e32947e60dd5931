"""Variables: a file a kind, and how they are made, indexed and updated."""
