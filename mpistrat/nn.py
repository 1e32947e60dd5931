"""``tf.nn`` for arrays: what variables of many rows need."""

from mpistrat.strategy.variables.embedding import embedding_lookup

__all__ = ["embedding_lookup"]
