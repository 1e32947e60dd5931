"""The strategies, a file each, and the members that they share."""
