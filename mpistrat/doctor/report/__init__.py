"""The report: a table for people, JSON and JUnit for programs."""
