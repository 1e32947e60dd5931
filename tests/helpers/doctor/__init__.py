"""Helpers of the tests of mpistrat.doctor."""
