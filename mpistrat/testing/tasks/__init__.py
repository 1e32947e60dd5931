"""Hand test bodies to the ranks of a job that stays up, and collect the outcomes."""
