"""Parameter servers and coordinators for tests."""
