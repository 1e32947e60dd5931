"""``tf.data`` on several ranks: sharding, seeds, and whether all ranks read the same."""
