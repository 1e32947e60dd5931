"""Strategies for tests: their variables, their input, what they train."""
