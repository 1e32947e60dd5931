"""`OneDeviceStrategy`: one replica, on one device of this rank."""

from __future__ import annotations

from functools import cached_property

from mpistrat.collectives import Communicator
from mpistrat.collectives.single_process import single_process_communicator
from mpistrat.tensorflow.original_distribute import distribute
from mpistrat.tensorflow.strategies.older_members import OlderMembers

__all__ = ["OneDeviceStrategy"]


class OneDeviceStrategy(OlderMembers, distribute.OneDeviceStrategy):  # type: ignore[misc]
    """TensorFlow's strategy with one replica on `device`, independent of other ranks.

    Parameters
    ----------
    device
        Such as ``"CPU:0"``, or ``"/cpu:0"`` as TensorFlow writes it.

    References
    ----------
    tf.distribute.OneDeviceStrategy.
    """

    @cached_property
    def communicator(self) -> Communicator:
        """Collectives of this process alone. **Local.**"""
        return single_process_communicator()

    def close(self) -> None:
        """Do nothing: there is nothing to free. **Local.**"""
