"""Count the messages, bytes and copies of each algorithm, by ranks, nodes and size."""
