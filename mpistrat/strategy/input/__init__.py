"""Data for the replicas: datasets of arrays, and how their batches reach each replica.

``datasets`` makes data (`mpistrat.data`), ``distributed`` cuts or deals it out (``cutting``) and
``iterator`` steps through it with a ``prefetch`` thread.
"""
