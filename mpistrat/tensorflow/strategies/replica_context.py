"""The context of a rank's only replica."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

__all__ = ["RankReplicaContext"]


class RankReplicaContext(tf.distribute.ReplicaContext):  # type: ignore[misc]
    """TensorFlow's context, for a replica that runs in the thread of its rank."""

    def all_reduce(
        self,
        reduce_op: tf.distribute.ReduceOp | str,
        value: Any,
        options: tf.distribute.CommunicationOptions | None = None,
    ) -> Any:
        """Reduce tensors over the replicas. **Collective.**

        Variables are read before: TensorFlow reads them in a function with a gradient of its own,
        which in eager code may use no variable of its thread.
        """
        return super().all_reduce(reduce_op, tf.nest.map_structure(_read, value), options)


def _read(value: Any) -> Any:
    return tf.convert_to_tensor(value) if isinstance(value, tf.Variable) else value
