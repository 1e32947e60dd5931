"""The end of the program: what runs then, and what is still to be printed."""
