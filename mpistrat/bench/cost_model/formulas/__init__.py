"""What each algorithm does: how many messages, bytes and copies, by ranks, nodes and size."""
