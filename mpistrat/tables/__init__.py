"""Rows of arrays in one process: which rows, their arithmetic, how they are divided."""
