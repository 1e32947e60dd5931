"""The lines that the scheduler reads: its defaults, the site's, the user's, and their rules."""
