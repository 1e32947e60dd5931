"""The tests below this folder share jobs of ranks, and share none with other tests."""
