"""Stand-ins on waiting ranks for values that only the driving rank has."""

from __future__ import annotations

from typing import Any, NoReturn

import tensorflow as tf

from mpistrat.errors import UsageError
from mpistrat.tensorflow.errors import of_both

__all__ = ["ValueOnDriver"]


class _ValueOnDriverError(UsageError, AttributeError):
    """So that ``hasattr`` is False."""


class ValueOnDriver(tf.experimental.ExtensionType):  # type: ignore[misc]
    """Stands for a value that only the driving rank has.

    Functions can take and return it, and so can ``strategy.run``, ``reduce`` and ``gather``. What
    ``run`` returns may be a nest on the driving rank. Of what kind is not known here, so its parts
    are taken by ``value[0]`` or ``value["key"]``, which are checked on the driving rank only, and
    not by unpacking. Everything else raises UsageError.

    Attributes
    ----------
    driver
        The rank that has the value.
    """

    driver: int

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise of_both(UsageError(_text(self.driver)))

    def __getattr__(self, name: str) -> Any:
        # Python and TensorFlow look for such names, and go on where there is none.
        if name.startswith("_"):
            return super().__getattr__(name)
        raise _ValueOnDriverError(f"{name!r}: {_text(self.driver)}")

    def __getitem__(self, key: Any) -> ValueOnDriver:
        return self

    def __iter__(self) -> NoReturn:
        # Without this, Python would iterate by __getitem__, which has no end.
        text = f"{_text(self.driver)}; {_PARTS}"
        raise of_both(UsageError(text))

    def __eq__(self, other: object) -> Any:
        return True if other is self else self._refuse()

    def __ne__(self, other: object) -> Any:
        return False if other is self else self._refuse()

    __hash__ = tf.experimental.ExtensionType.__hash__
    __float__ = __int__ = __index__ = __complex__ = __bool__ = __array__ = _refuse
    __len__ = __contains__ = __round__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __neg__ = __pos__ = __abs__ = __invert__ = __add__ = __radd__ = __sub__ = __rsub__ = _refuse
    __mul__ = __rmul__ = __matmul__ = __rmatmul__ = __truediv__ = __rtruediv__ = _refuse
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __pow__ = __rpow__ = _refuse
    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = _refuse

    def __format__(self, how: str) -> str:
        return str(self) if not how else self._refuse()


_PARTS = (
    "how many parts it has is not known here: take them on all ranks by value[0], value[1] or"
    ' value["key"], instead of unpacking it or looping over it'
)


def _text(driver: int) -> str:
    return (
        f"this value is on rank {driver} only, which drives; use it inside of what strategy.run or"
        " strategy.on_driver calls, or have it brought here by strategy.reduce or strategy.gather"
    )


def _no_tensor(value: ValueOnDriver, *_: Any, **__: Any) -> NoReturn:
    value._refuse()


tf.register_tensor_conversion_function(ValueOnDriver, _no_tensor)
