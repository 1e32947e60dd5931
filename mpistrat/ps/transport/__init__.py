"""Messages between the members of a job with parameter servers, and who has which role."""
