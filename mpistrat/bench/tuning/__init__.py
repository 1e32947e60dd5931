"""The search for the fastest settings of a machine, for the case ``tune``."""
