"""Programs that tests of preemption start on ranks, and what they look at."""
