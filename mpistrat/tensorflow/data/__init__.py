"""``tf.data`` on several ranks: sharding, seeds, and checks that all ranks read the same data."""
