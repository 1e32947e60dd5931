"""Members of older tf.distribute versions that TensorFlow 2.21 has removed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from mpistrat.strategy.input.distributed import check_numpy_input

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["OlderMembers"]


class OlderMembers:
    """Mixin with the strategy members of older tf.distribute versions."""

    def experimental_run_v2(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call ``run``, under its name of TensorFlow 2.0."""
        return self.run(fn, args=args, kwargs=kwargs)  # type: ignore[attr-defined]

    def experimental_initialize(self) -> list[Any]:
        """Return no operations: nothing has to be initialized. **Local.**"""
        return []

    def experimental_finalize(self) -> list[Any]:
        """Return no operations: nothing has to be finalized. **Local.**"""
        return []

    def experimental_make_numpy_dataset(
        self, numpy_input: Any, session: Any = None
    ) -> tf.data.Dataset:
        """Return a dataset of the rows of a nest of arrays. **Local.**

        Parameters
        ----------
        numpy_input
            Arrays of equal length, in any structure. A list of arrays is stacked, but not within
            a dict.
        session
            Not used.
        """
        del session
        check_numpy_input(numpy_input)
        rows = np.stack(numpy_input) if isinstance(numpy_input, list) else numpy_input
        return tf.data.Dataset.from_tensor_slices(rows)

    def reduce(self, reduce_op: Any, value: Any, axis: Any = None) -> Any:
        """See tf.distribute.Strategy.reduce; `axis` may be left out, as in older versions."""
        return super().reduce(reduce_op, value, axis)  # type: ignore[misc]

    def close(self) -> None:
        """End the strategy."""
        raise NotImplementedError

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return itself: a copy could not take part in the strategy's collectives."""
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.close()
