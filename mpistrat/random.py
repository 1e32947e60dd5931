"""Random streams for each replica, from one seed, the same on any number of restarts."""

from __future__ import annotations

import hashlib

import numpy as np

from mpistrat.errors import ArgumentTypeError, UsageError

__all__ = ["generator"]

_WORD = 2**32


def generator(
    seed: int, *, stream: str = "", step: int = 0, replica_id: int | None = None
) -> np.random.Generator:
    """Return a random generator of its own for each replica, stream and step.

    Parameters
    ----------
    seed
        Not negative; the same on all ranks.
    stream
        A name that keeps uses apart, such as ``"dropout"`` and ``"augment"``.
    step
        Not negative. A restarted program that passes its step continues where it was.
    replica_id
        Whose stream. By default the replica that calls, inside ``run``; outside of it, in the
        cross-replica context, a stream that all ranks have in common.

    Returns
    -------
    numpy.random.Generator
        A new one, at the beginning of its stream. What it draws depends on the four arguments
        only: not on the number of replicas, on other streams, on the process or on the machine.

    Raises
    ------
    UsageError
        A number is negative or too large.

    Notes
    -----
    **Local**. About 20 µs. The bit generator is Philox, which is counter-based: streams of
    different keys are independent.

    Examples
    --------
    >>> noise = generator(7, stream="dropout", step=3, replica_id=0)
    >>> again = generator(7, stream="dropout", step=3, replica_id=0)
    >>> bool(noise.random() == again.random())
    True
    """
    replica = _current_replica() if replica_id is None else replica_id
    # Every part takes a fixed number of 32-bit words, so that no two keys run into each other.
    key = (
        *_stream_words(stream),
        *_words("step", step, 2),
        *((0, 0) if replica is None else (1, *_words("replica_id", replica, 1))),
    )
    sequence = np.random.SeedSequence(_words("seed", seed, 4), spawn_key=key)
    return np.random.Generator(np.random.Philox(sequence))


def _current_replica() -> int | None:
    from mpistrat.strategy.context import get_replica_context

    context = get_replica_context()
    return None if context is None else int(context.replica_id_in_sync_group)


def _stream_words(name: str) -> tuple[int, ...]:
    """Hash a name; Python's hash() differs from process to process."""
    if not isinstance(name, str):
        raise ArgumentTypeError(f"stream={name!r}: expected a name, such as 'dropout'")
    digest = hashlib.blake2b(name.encode(), digest_size=16).digest()
    return tuple(int.from_bytes(digest[i : i + 4], "little") for i in range(0, 16, 4))


def _words(what: str, value: int, count: int) -> tuple[int, ...]:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise ArgumentTypeError(f"{what}={value!r}: expected a whole number")
    number = int(value)
    if not 0 <= number < _WORD**count:
        raise UsageError(f"{what}={number}: expected 0 to 2**{32 * count} - 1")
    return tuple(number // _WORD**i % _WORD for i in range(count))
