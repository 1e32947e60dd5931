"""Predict times at numbers of ranks that were not measured, and say what outgrows what."""
