"""How arrays are cut for several nodes: every element once, on every placement."""

import numpy as np
import pytest

from mpistrat import config
from mpistrat.collectives.nodes import Nodes
from mpistrat.collectives.segments import Segments, pieces
from mpistrat.collectives.shm import reduce_arrays, why_no_kernels

PLACEMENTS = {
    "two and two": [0, 0, 1, 1],
    "round robin": [0, 1, 0, 1],
    "three and one": [0, 0, 0, 1],
    "one each": [0, 1, 2],
}


@pytest.fixture(params=PLACEMENTS, autouse=True)
def segments(request, monkeypatch):
    """Segments of elements of 4 bytes, in turns of a few elements."""
    monkeypatch.setattr(config, "RING_BYTES", 8)
    monkeypatch.setattr(config, "RING_MOST_BYTES", 40)
    return Segments(Nodes.of(0, PLACEMENTS[request.param]), 4)


def covered(parts, count, lanes):
    """How often each element is carried."""
    times = np.zeros(count, int)
    for part in parts:
        for lane in range(lanes):
            for stretch in part.of_lane(lane, lanes):
                times[stretch] += 1
    return times


@pytest.mark.parametrize("count", [1, 2, 7, 64, 1001])
def test_every_element_is_carried_once(segments, count):
    nodes = segments.nodes
    lanes, size = nodes.lanes, len(nodes.places)
    counts = [count * (rank % 3) for rank in range(size)]
    for parts, total in (
        (segments.shared(count), count),
        (segments.rooted(count, size - 1), count),
        (segments.owned(counts), sum(counts)),
    ):
        assert (covered(parts, total, lanes) == 1).all()


def test_blocks_belong_to_their_owners(segments):
    nodes = segments.nodes
    counts = [5 * rank + 3 for rank in range(len(nodes.places))]
    owners = np.repeat(np.arange(len(counts)), counts)
    starts = np.cumsum([0, *counts])
    for part in segments.owned(counts):
        for node, (start, count) in enumerate(part.blocks):
            if count:
                rank = nodes.groups[node][part.owner]
                assert (owners[start : start + count] == rank).all()
                assert start - starts[rank] == part.offset


def test_no_turn_is_longer_than_it_may_be(segments):
    most = config.RING_MOST_BYTES // 4 * segments.nodes.lanes
    for part in segments.shared(5000):
        assert max(count for _, count in part.blocks) <= most


def test_pieces_are_views_of_the_given_lengths():
    array = np.arange(6)
    found = pieces(array, [2, 0, 4])
    assert [piece.tolist() for piece in found] == [[0, 1], [], [2, 3, 4, 5]]
    assert all(piece.base is array for piece in found)


@pytest.mark.skipif(why_no_kernels() is not None, reason="built without kernels")
def test_arrays_are_reduced_in_order_and_in_place():
    one, two = np.array([1.0, 2.0, np.nan]), np.array([3.0, -1.0, 0.0])
    reduce_arrays(one, [one, two], "max")
    np.testing.assert_array_equal(one, [3.0, 2.0, np.nan])
    reduce_arrays(two, [two, two], "sum", 4)
    np.testing.assert_array_equal(two, [1.5, -0.5, 0.0])
    with pytest.raises(ValueError, match="differ in bytes"):
        reduce_arrays(one, [one, two[:2]], "sum")
