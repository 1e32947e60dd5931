"""`HorovodCollectives`: Horovod's operations among the ranks of a strategy, with gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from mpistrat.collectives.operations.root_check import check_root
from mpistrat.errors import UsageError
from mpistrat.tensorflow.graph.horovod.bridge import HorovodBridge

__all__ = ["HorovodCollectives"]

_OPS = ("sum", "mean")


class HorovodCollectives:
    """Collectives of tensors that Horovod carries, beside those of a strategy.

    Parameters
    ----------
    strategy
        Made with ``cross_device_ops=HorovodAllReduce()`` or ``backend="horovod"``.

    Raises
    ------
    UsageError
        Horovod does not carry the strategy's values.

    Notes
    -----
    All methods are **Collective**, and work in eager code and in a ``tf.function``. Gradients are
    those of the sum of all ranks' losses, as in ``tf.distribute``. Tensors may have the dtypes of
    `HorovodAllReduce`, strings in `all_gather` and `broadcast` alone. The ranks compare op, dtype,
    shape and root of each call; what a rank finds wrong by itself it raises before.
    """

    def __init__(self, strategy: Any) -> None:
        bridge = getattr(strategy.extended, "bridge", None)
        if not isinstance(bridge, HorovodBridge):
            raise UsageError(
                f"{type(strategy).__name__} was made without Horovod; make it with"
                " cross_device_ops=mpistrat.tensorflow.HorovodAllReduce()"
            )
        self._bridge = bridge

    def all_reduce(self, tensors: Any, op: str = "sum") -> Any:
        """Combine a tensor, or each of a list in one grouped call, over the ranks.

        Parameters
        ----------
        tensors
            A tensor or a list of tensors, of equal shapes and dtypes on all ranks.
        op
            ``"sum"`` or ``"mean"``.

        Returns
        -------
        tf.Tensor or list of tf.Tensor
            Of the same shapes and dtypes.
        """
        is_list = isinstance(tensors, (list, tuple))
        given = [tf.convert_to_tensor(one) for one in (tensors if is_list else [tensors])]
        if not given:
            return []
        for one in given:
            _check_reduction("all_reduce", op, one)

        def call(*sent: tf.Tensor) -> list[tf.Tensor]:
            return self._bridge.all_reduce(sent, op)

        found = _with_gradient(call, call)(*given)
        return list(found) if is_list else found[0]

    def all_gather(self, tensor: Any, axis: int = 0) -> tf.Tensor:
        """Concatenate the ranks' tensors along `axis`, along which their lengths may differ."""
        tensor = tf.convert_to_tensor(tensor)
        axis = _check_axis("all_gather", tensor, axis)

        def call(sent: tf.Tensor) -> list[tf.Tensor]:
            return [self._bridge.all_gather(sent, axis)]

        def gradient(upstream: tf.Tensor) -> list[tf.Tensor]:
            (total,) = self._bridge.all_reduce([upstream])
            lengths = self._bridge.all_gather(tf.shape(tensor)[axis : axis + 1])
            return [tf.split(total, lengths, axis, num=self._bridge.size)[self._bridge.rank]]

        return _with_gradient(call, gradient)(tensor)[0]

    def broadcast(self, tensor: Any, root: int = 0) -> tf.Tensor:
        """Return the root's tensor; the other ranks' has its shape and dtype."""
        check_root(root, self._bridge.size, "broadcast")

        def call(sent: tf.Tensor) -> list[tf.Tensor]:
            return [self._bridge.broadcast_from(sent, root)]

        def gradient(upstream: tf.Tensor) -> list[tf.Tensor]:
            (total,) = self._bridge.all_reduce([upstream])
            return [total if self._bridge.rank == root else tf.zeros_like(total)]

        return _with_gradient(call, gradient)(tf.convert_to_tensor(tensor))[0]

    def reduce_scatter(self, tensor: Any, op: str = "sum") -> tf.Tensor:
        """Combine the ranks' tensors; return this rank's part of the first dimension.

        The first dimension is divided evenly; the first ranks have one row more where a rest is
        left.
        """
        tensor = tf.convert_to_tensor(tensor)
        _check_axis("reduce_scatter", tensor, 0)
        _check_reduction("reduce_scatter", op, tensor)

        def call(sent: tf.Tensor) -> list[tf.Tensor]:
            return [self._bridge.reduce_scatter(sent, op)]

        def gradient(upstream: tf.Tensor) -> list[tf.Tensor]:
            whole = self._bridge.all_gather(upstream)
            return [whole / self._bridge.size if op == "mean" else whole]

        return _with_gradient(call, gradient)(tensor)[0]

    def all_to_all(self, tensor: Any, splits: Any = None) -> tuple[tf.Tensor, tf.Tensor]:
        """Send parts of the first dimension to the ranks, and receive theirs.

        Parameters
        ----------
        tensor
            Of equal shape on all ranks but for the first dimension.
        splits
            int32 of shape [ranks]: how many rows go to each rank; together all rows. Default:
            equally many, of a first dimension that is divisible.

        Returns
        -------
        tuple of tf.Tensor
            The rows that came, in the order of the ranks; and how many came from each.
        """
        tensor = tf.convert_to_tensor(tensor)
        _check_axis("all_to_all", tensor, 0)
        sent = self._splits(tensor, splits)

        def call(rows: tf.Tensor, counts: tf.Tensor) -> list[tf.Tensor]:
            return list(self._bridge.all_to_all(rows, counts))

        @tf.custom_gradient  # type: ignore[untyped-decorator]
        def exchange(rows: tf.Tensor) -> Any:
            found, came = call(rows, sent)
            return (found, came), lambda upstream, _: call(upstream, came)[0]

        found, came = exchange(tensor)
        return found, came

    def _splits(self, tensor: tf.Tensor, splits: Any) -> tf.Tensor:
        """Return checked splits: Horovod would fail on one rank, and leave the others waiting."""
        length, size = tf.shape(tensor)[0], self._bridge.size
        if splits is None:
            splits = tf.fill([size], length // size)
        counts = tf.cast(splits, tf.int32)
        message = f"all_to_all: splits are one number of rows for each of {size} ranks, all rows"
        with tf.control_dependencies(
            [
                tf.debugging.assert_equal(tf.shape(counts), [size], message),
                tf.debugging.assert_equal(tf.reduce_sum(counts), length, message),
            ]
        ):
            return tf.identity(counts)


def _check_reduction(what: str, op: str, tensor: tf.Tensor) -> None:
    """Raise before anything is sent where Horovod's result would be no sum or mean."""
    dtype = tensor.dtype
    if op not in _OPS:
        raise UsageError(f"{what}: op={op!r}; expected one of {', '.join(_OPS)}")
    if dtype == tf.string or (op == "mean" and not (dtype.is_floating or dtype.is_complex)):
        raise UsageError(
            f"{what}: the {op} of a tensor of {dtype.name}; expected numbers, and floats for a"
            " mean: tf.cast it first"
        )


def _check_axis(what: str, tensor: tf.Tensor, axis: int) -> int:
    """Return `axis` counted from the first dimension; raise if the tensor has no such one."""
    rank = tensor.shape.rank
    if rank is not None and not -rank <= axis < rank:
        raise UsageError(
            f"{what} along axis={axis} of a tensor of shape {tensor.shape}; expected a tensor with"
            " at least one dimension, and an axis that it has"
        )
    return axis + rank if axis < 0 and rank is not None else axis


def _with_gradient(
    call: Callable[..., list[tf.Tensor]], gradient: Callable[..., Sequence[tf.Tensor]]
) -> Callable[..., Any]:
    """Return `call` with the gradient of its inputs, for the gradients of its outputs."""

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def differentiable(*sent: tf.Tensor) -> Any:
        return call(*sent), lambda *upstream: list(gradient(*upstream))

    found: Callable[..., Any] = differentiable
    return found
