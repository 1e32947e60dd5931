"""Parts of all cases: problems with known answers, the clock, records."""
