"""Checks that compare the machine with the site's file; each names what the file should say."""
