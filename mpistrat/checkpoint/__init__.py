"""Save and restore variables, arrays and numbers.

A checkpoint is a folder: safetensors files, which the ranks write in parallel, and
``index.json``, which says what they hold. The index is put in its place as a whole when all else
is on the disk, so a checkpoint is there completely or not at all, and a path that is saved to
again holds the old one or the new one at any time. The way of a save: graph.py (what is there),
division.py (who writes what), data_files.py, index.py, in the order that saving.py has; of a
restore: index.py, matching.py, data_files.py, as in restoring.py.
"""
