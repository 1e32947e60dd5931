"""The communicators of a benchmark, one for each backend, and its peers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from mpistrat import Communicator
from mpistrat.bench.peers import open_peers
from mpistrat.bench.peers.base import Peer
from mpistrat.errors import (
    BackendError,
    BackendNotFoundError,
    BackendUnavailableError,
    MismatchError,
)

__all__ = ["Session", "open_session"]

Say = Callable[[str], None]


@dataclass(frozen=True)
class Session:
    """The open communicators and peers that all rows share.

    Attributes
    ----------
    communicator
        Through which the ranks meet and agree; never measured.
    backends
        A communicator for each backend that works here, by the name that was asked for.
    peers
        The other libraries.
    """

    communicator: Communicator
    backends: dict[str, Communicator]
    peers: list[Peer]

    def agree(self, is_right: bool) -> bool:
        """Return whether `is_right` is true on all ranks. **Collective.**"""
        return bool(self.communicator.allreduce(np.array(is_right), "and"))


@contextmanager
def open_session(backends: Sequence[str], peers: Sequence[str]) -> Iterator[Session]:
    """Open the backends and peers; print which of them cannot be used. **Collective.**

    Raises
    ------
    BackendNotFoundError
        A backend's name is not known.
    BackendUnavailableError
        None of the backends works here.
    """
    with Communicator() as communicator:
        say = print if communicator.rank == 0 else _say_nothing
        opened = {name: _open(name, communicator, say) for name in backends}
        working = {name: one for name, one in opened.items() if one is not None}
        if not working:
            raise BackendUnavailableError(
                f"none of the backends {', '.join(backends)} can be used here; see above for why"
            )
        session = Session(communicator, working, open_peers(peers, communicator, say))
        yield session  # after an error the ranks may be apart: then nothing is closed together
        communicator.barrier()
        for peer in session.peers:
            peer.teardown()
        for one in working.values():
            one.close()


def _say_nothing(line: str) -> None:
    """Print nothing: rank 0 prints the line."""


def _open(name: str, communicator: Communicator, say: Say) -> Communicator | None:
    opened, reason = None, None
    try:
        opened = Communicator(backend=name)
    except BackendNotFoundError:
        # A wrong name is wrong on all ranks, so all raise.
        raise
    except (BackendError, MismatchError) as error:  # a mismatch: it works here, but not elsewhere
        reason = str(error)
    # A backend is measured on all ranks or on none: its calls are collective.
    reasons = [why for why in communicator.allgather_object(reason) if why]
    if not reasons:
        return opened
    say(f"backend {name}: left out, {reasons[0]}")
    if opened is not None:
        opened.close()
    return None
