"""``bench tune`` looks for a size upwards and downwards, for as long as that wins."""

from dataclasses import dataclass
from types import SimpleNamespace

import pytest

pytest.importorskip("rich")

from mpistrat.bench.tuning.between_nodes import WireSearch
from mpistrat.bench.tuning.comparison import NEVER, Trial
from mpistrat.collectives.backends.shared_memory.tuning import WireTuning

SIZES = (1, 2, 4, 8, 16)


@dataclass
class Preferring(Trial):
    """Prefers sizes that are nearer to `ideal`, and notes at which bytes it compared."""

    ideal: int

    def __post_init__(self):
        self.lengths = []

    def better(self, nbytes, one, other):
        self.lengths.append(nbytes)
        return min(one, other, key=lambda way: abs(way.ring_bytes - self.ideal))


@pytest.mark.parametrize(
    ("ideal", "found", "lengths"),
    [
        (4, 4, [8, 4]),
        (5, 4, [8, 4]),
        (8, 8, [8, 16]),
        (99, 16, [8, 16]),
        (2, 2, [8, 4, 2]),
        (0, 1, [8, 4, 2]),
    ],
)
def test_a_size_is_left_for_as_long_as_that_wins(ideal, found, lengths):
    trial = Preferring(ideal)
    base = WireTuning(short_bytes=7, ring_bytes=4)
    assert trial.stepwise(base, "ring_bytes", SIZES, max) == WireTuning(7, found)
    assert trial.lengths == lengths


def test_first_and_last():
    trial = Preferring(NEVER)
    assert trial.last(WireTuning(), "ring_bytes", (10, 20)) == 20
    assert trial.first(WireTuning(), "ring_bytes", (10, 20)) == NEVER
    trial = Preferring(1)
    assert trial.last(WireTuning(), "ring_bytes", (10, 20), ranks=5) == 1
    assert trial.first(WireTuning(), "ring_bytes", (10, 20)) == 10
    assert trial.lengths == [2, 10]


@pytest.mark.parametrize(("lanes", "nodes", "longest"), [(1, 2, 4 << 20), (64, 64, 64 << 20)])
def test_arrays_between_many_nodes_are_no_longer_than_memory_allows(
    monkeypatch, lanes, nodes, longest
):
    lengths = []

    def better(_trial, nbytes, _one, other):
        lengths.append(nbytes)
        return other

    monkeypatch.setattr(Trial, "better", better)
    backend = SimpleNamespace(
        nodes=SimpleNamespace(lanes=lanes, count=nodes), tune_wire=lambda _way: None
    )
    WireSearch(None, backend).best("wire")
    assert max(lengths) == longest
