"""Files: written whole, locked, in temporary folders of a job or of a target's file system."""
