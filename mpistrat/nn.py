"""``tf.nn`` for arrays: `embedding_lookup`."""

from mpistrat.strategy.variables.sharded.embedding import embedding_lookup

__all__ = ["embedding_lookup"]
