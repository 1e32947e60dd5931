"""The ranks that save or restore together: who writes what, and errors on all of them."""
