"""Helpers of the tests of the collectives on the host."""
