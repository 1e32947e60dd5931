"""Helpers of the tests of benchmarks: made-up results, a browser, and framed messages."""
