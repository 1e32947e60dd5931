"""The memory of a shard, and how other processes read it while it is changed."""
