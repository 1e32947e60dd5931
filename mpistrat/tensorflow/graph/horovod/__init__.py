"""Collectives that Horovod carries, for strategies that are given `HorovodAllReduce()`."""
