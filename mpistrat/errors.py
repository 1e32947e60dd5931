"""The exceptions of mpistrat.

::

    MpistratError
    ├── UsageError (ValueError)               an argument or a call that cannot be right
    │   ├── ArgumentTypeError (TypeError)     a value of the wrong type
    │   ├── ContextError (RuntimeError)       the right call in the wrong place
    │   └── ClosedError (RuntimeError)        a call on a closed strategy or communicator
    ├── ClusterError (RuntimeError)           the ranks of the job do not fit together
    ├── BackendError (RuntimeError)
    │   ├── BackendNotFoundError (ValueError) no backend has that name
    │   └── BackendUnavailableError           the backend cannot work here; says why
    ├── CommunicationError (RuntimeError)
    │   ├── CommunicationTimeoutError (TimeoutError)  a deadline passed; names the ranks
    │   ├── PeerLostError                     another rank failed or left
    │   ├── MismatchError (ValueError)        the ranks called different things
    │   └── TornReadError                     shared memory changed all the time it was read
    ├── CheckpointError (RuntimeError)        cannot be written or read; names the file
    │   ├── CheckpointNotFoundError (FileNotFoundError)  there is no complete checkpoint
    │   └── CheckpointMismatchError (AssertionError)     it does not hold what a program has
    └── CoordinatorError (RuntimeError)       a function sent to a worker failed

Where `tf.distribute` documents a built-in exception type, the class here derives from it, so
``except ValueError`` written for TensorFlow keeps working.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = [
    "ArgumentTypeError",
    "BackendError",
    "BackendNotFoundError",
    "BackendUnavailableError",
    "CheckpointError",
    "CheckpointMismatchError",
    "CheckpointNotFoundError",
    "ClosedError",
    "ClusterError",
    "CommunicationError",
    "CommunicationTimeoutError",
    "ContextError",
    "CoordinatorError",
    "MismatchError",
    "MpistratError",
    "PeerLostError",
    "TornReadError",
    "UsageError",
]


class MpistratError(Exception):
    """Base of every exception that mpistrat raises on purpose."""


class UsageError(MpistratError, ValueError):
    """An argument or a call that cannot be right, found before anything was sent."""


class ArgumentTypeError(UsageError, TypeError):
    """An argument of a type that cannot be used here."""


class ContextError(UsageError, RuntimeError):
    """A call made in the wrong context (replica or cross-replica, or another strategy's scope)."""


class ClosedError(UsageError, RuntimeError):
    """A call on a strategy or communicator after its ``close()``."""


class ClusterError(MpistratError, RuntimeError):
    """The ranks of the job do not fit together, or the launcher and MPI do not."""


class BackendError(MpistratError, RuntimeError):
    """A backend cannot be used."""


class BackendNotFoundError(BackendError, ValueError):
    """No backend is registered under that name."""


class BackendUnavailableError(BackendError):
    """The backend exists but cannot work on this machine or job."""


class CommunicationError(MpistratError, RuntimeError):
    """A collective failed."""


class CommunicationTimeoutError(CommunicationError, TimeoutError):
    """A wait passed its deadline.

    Attributes
    ----------
    missing
        Ranks that had not arrived, where they are known.
    """

    def __init__(self, message: str, missing: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.missing = missing


class PeerLostError(CommunicationError):
    """Another rank failed, was interrupted or left, so this collective can never finish.

    Attributes
    ----------
    rank
        The rank that was lost, of the communicator; -1 if it is not known.
    world_rank
        Its rank in COMM_WORLD; -1 if that is not known.
    """

    def __init__(self, message: str, rank: int = -1, world_rank: int = -1) -> None:
        super().__init__(message)
        self.rank, self.world_rank = rank, world_rank


class MismatchError(CommunicationError, ValueError):
    """The ranks called different collectives, or the same one with unequal arguments.

    Attributes
    ----------
    calls
        What every rank called, by rank.
    """

    def __init__(self, message: str, calls: Mapping[int, str] | None = None) -> None:
        super().__init__(message)
        self.calls = dict(calls or {})


class TornReadError(CommunicationError):
    """A parameter server changed its memory all the time it was read; ask it for a copy."""


class CheckpointError(MpistratError, RuntimeError):
    """A checkpoint could not be written, or is corrupt or incomplete."""


class CheckpointNotFoundError(CheckpointError, FileNotFoundError):
    """There is no checkpoint at a path, or it was never completed."""


class CheckpointMismatchError(CheckpointError, AssertionError):
    """A program's objects and a checkpoint do not hold the same things."""


class CoordinatorError(MpistratError, RuntimeError):
    """A function that a coordinator sent to a worker failed there."""
