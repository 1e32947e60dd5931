"""The strategies for arrays: the API of tf.distribute over a `Communicator`.

A call walks down through base (what users call) → extended (which replicas?) →
reduction/cross_device_ops (combine those of this rank) → collectives. One file or folder a
strategy, `one_device` the simplest.
"""
