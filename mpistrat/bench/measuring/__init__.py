"""What all cases share: problems with known answers, the clock, records."""
