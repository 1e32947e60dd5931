"""Helpers that several test files of this repository share."""
