"""The collectives of a recorded timeline, called again without the program that made them."""
