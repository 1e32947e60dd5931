"""Facts about files: the file system of a path, and whether a folder can be written."""
