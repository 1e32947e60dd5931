"""The carrier of arrays on GPUs is chosen alike on all ranks, from where their GPUs are."""

import pytest

from mpistrat.collectives.backends.gpu.choice import choose
from mpistrat.collectives.backends.gpu.facts import Facts
from mpistrat.errors import BackendUnavailableError


def ranks(places, carrier="auto", nccl=(23000,)):
    """Return the facts of ranks at ``(host, PCI bus)``."""
    versions = list(nccl) * len(places)
    return [
        Facts(host, rank, bus, False, version, carrier)
        for rank, ((host, bus), version) in enumerate(zip(places, versions, strict=False))
    ]


OWN = [("a", "1"), ("a", "2")]
SHARED = [("a", "1"), ("a", "1")]
NODES = [("a", "1"), ("b", "1")]


@pytest.mark.parametrize(
    ("facts", "names"),
    [
        (ranks(OWN), ["nccl", "peer_memory", "staged"]),
        (ranks(SHARED), ["peer_memory", "staged"]),
        (ranks(NODES), ["nccl", "staged"]),
        (ranks(NODES, nccl=(0,)), ["staged"]),
        (ranks(OWN, nccl=(23000, 23100)), ["peer_memory", "staged"]),
        (ranks([("a", "1")]), ["peer_memory", "staged"]),
        (ranks([("a", "1")] * 16), ["peer_memory", "staged"]),
        (ranks([("a", "1")] * 17), ["staged"]),  # more than a kernel reduces
        (ranks(OWN, "staged"), ["staged"]),
    ],
)
def test_best_first(facts, names):
    assert choose(facts) == names


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (ranks(SHARED, "nccl"), "2 ranks have 1 GPUs, and NCCL needs one a rank"),
        (ranks(OWN, "nccl", nccl=(0, 1)), r"ranks \[0\] have a CuPy without NCCL"),
        (ranks(OWN, "nccl", nccl=(1, 2)), r"NCCL of versions \[1, 2\]"),
        (ranks(NODES, "peer_memory"), "on several nodes"),
        (ranks([("a", "1")] * 17, "peer_memory"), "17 ranks, and a kernel reduces at most 16"),
    ],
)
def test_what_is_asked_for_and_cannot_serve_is_refused(facts, words):
    with pytest.raises(BackendUnavailableError, match=words):
        choose(facts)
