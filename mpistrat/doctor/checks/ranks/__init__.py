"""Checks that compare the ranks with each other: speed, software, variables, clocks."""
