"""The calls of a communicator that are under way: their queue, and how each is waited for."""
