"""A parameter server: the requests that it serves, and what it keeps until a round ends."""
