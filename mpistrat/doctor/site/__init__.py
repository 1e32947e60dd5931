"""The site that a machine is compared with, and the file with what it should say."""
