"""Other libraries to compare with: each is one file, and one line in `PEERS`."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable

from mpistrat import Communicator
from mpistrat.bench.peers.base import Peer
from mpistrat.errors import UsageError

__all__ = ["PEERS", "open_peers", "parse_peers"]

PEERS = {
    "mpi4py": "mpistrat.bench.peers.mpi:MpiPeer",
    "gloo": "mpistrat.bench.peers.gloo:GlooPeer",
    "horovod": "mpistrat.bench.peers.horovod:HorovodPeer",
    "tensorflow": "mpistrat.bench.peers.tensorflow:TensorFlowPeer",
}


def parse_peers(text: str) -> list[str]:
    """Return the names in a comma list; ``all`` names every peer, an empty text none."""
    names = list(PEERS) if text == "all" else [part.strip() for part in text.split(",") if part]
    if unknown := [name for name in names if name not in PEERS]:
        raise UsageError(f"peer {unknown[0]!r} is not known; expected all, {', '.join(PEERS)}")
    return list(dict.fromkeys(names))


def open_peers(
    names: Iterable[str], communicator: Communicator, say: Callable[[str], None]
) -> list[Peer]:
    """Set up the peers that every rank can use; `say` why the others are left out.

    **Collective.**
    """
    peers = []
    for name in names:
        module, _, attribute = PEERS[name].partition(":")
        peer: Peer = getattr(importlib.import_module(module), attribute)()
        reasons = [why for why in communicator.allgather_object(peer.missing()) if why]
        if reasons:
            say(f"peer {name}: left out, {reasons[0]}")
        else:
            peer.setup(communicator)
            peers.append(peer)
    return peers
