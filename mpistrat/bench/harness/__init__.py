"""The harness of all cases: problems with known answers, timing in turns, JSON records."""
