"""Hooks into Keras: what its `fit`, `evaluate` and `predict` do on several ranks."""
