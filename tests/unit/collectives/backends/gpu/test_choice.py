"""The carrier of arrays on GPUs is chosen alike on all ranks, from where their GPUs are."""

import pytest

from mpistrat.collectives.backends.gpu.choice import choose, lacking_nccl, why_no_one_shot
from mpistrat.collectives.backends.gpu.facts import Facts
from mpistrat.errors import BackendUnavailableError


def ranks(places, carrier="auto", nccl=(23000,), one_shot="auto", **others):
    """Return the facts of ranks at ``(host, PCI bus)``."""
    versions = list(nccl) * len(places)
    given = {
        "model": "A1",
        "is_amd": False,
        "has_flags": True,
        "carrier": carrier,
        "one_shot": one_shot,
    }
    return [
        Facts(
            **{"host": host, "process": str(rank), "bus": bus, "nccl": version, **given, **others}
        )
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
        (ranks(OWN, "nccl", nccl=(0, 1)), r"no NCCL on ranks \[0\]; install"),
        (ranks(OWN, "nccl", nccl=(1, 2)), r"NCCL of versions \[1, 2\]"),
        (ranks(NODES, "peer_memory"), "on several nodes"),
        (ranks([("a", "1")] * 17, "peer_memory"), "17 ranks, and a kernel reduces at most 16"),
    ],
)
def test_what_is_asked_for_and_cannot_serve_is_refused(facts, words):
    with pytest.raises(BackendUnavailableError, match=words):
        choose(facts)


def on_gpus(count):
    return [("a", str(bus)) for bus in range(count)]


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (ranks(on_gpus(2)), None),
        (ranks(on_gpus(8)), None),
        (ranks(on_gpus(2), one_shot="on", is_amd=True), None),
        (ranks(on_gpus(2), one_shot="off"), "MPISTRAT_GPU_ONE_SHOT=off"),
        (ranks(on_gpus(2), is_amd=True, has_flags=False), "GPUs of AMD"),
        (ranks(on_gpus(1)), "1 ranks"),
        (ranks(on_gpus(9)), "9 ranks"),
        (ranks(SHARED, one_shot="on"), "some ranks share a GPU"),
        (ranks(NODES, one_shot="on"), "on several nodes"),
        (ranks(on_gpus(2), process=1), "threads of one process"),
    ],
)
def test_kernels_wait_for_each_other_only_where_each_has_a_gpu(facts, words):
    why = why_no_one_shot(facts)
    assert why is None if words is None else words in why


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        (ranks(OWN), None),
        (ranks(SHARED, nccl=(0,)), None),  # it is of no use there
        (ranks([("a", "1")], nccl=(0,)), None),
        (ranks(OWN, "staged", nccl=(0,)), None),  # as asked for
        (ranks(OWN, nccl=(0, 23000)), "no NCCL on ranks [0]; install it (nvidia-nccl-cu13"),
        (ranks(NODES, nccl=(23000, 23100)), "versions [23000, 23100]"),
    ],
)
def test_users_are_told_of_an_nccl_that_is_missing(facts, text):
    found = lacking_nccl(facts)
    assert found is None if text is None else text in found
