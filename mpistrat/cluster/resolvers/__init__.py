"""Cluster resolvers: the tasks of the job, and which of them this process is."""
