"""Parameter servers: variables that some ranks keep, and others pull from and push to."""
