"""One replica, on one device of this rank."""

from __future__ import annotations

import tensorflow as tf

from mpistrat.tensorflow.members import OlderMembers

__all__ = ["OneDeviceStrategy"]


class OneDeviceStrategy(OlderMembers, tf.distribute.OneDeviceStrategy):  # type: ignore[misc]
    """TensorFlow's strategy of one replica on `device`; other ranks have nothing to do with it.

    Parameters
    ----------
    device
        Such as ``"CPU:0"``, or ``"/cpu:0"`` as TensorFlow writes it.

    References
    ----------
    tf.distribute.OneDeviceStrategy.
    """

    def close(self) -> None:
        """Do nothing: there is nothing to free. **Local.**"""
