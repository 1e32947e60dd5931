"""The backends that carry collectives, a file each; `base` says what a backend is."""
