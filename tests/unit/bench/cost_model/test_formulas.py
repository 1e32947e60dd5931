"""The counts of each algorithm are those of its schedule, written out step by step."""

from math import ceil, log2

import pytest

from mpistrat import built_in_sizes
from mpistrat.bench.cost_model.formulas import between_nodes as between
from mpistrat.bench.cost_model.formulas.counts import NAMES, Counts
from mpistrat.bench.cost_model.formulas.layout import Layout, Node, layout_of
from mpistrat.bench.cost_model.formulas.library import (
    HEAD_BYTES,
    OPS,
    algorithm_name,
    call,
    header_exchange,
)
from mpistrat.bench.cost_model.formulas.messages import (
    bruck_allgather,
    exchange_all,
    gather_to_root,
)
from mpistrat.bench.cost_model.formulas.on_node import on_node
from mpistrat.bench.cost_model.formulas.segments import cut_ring

NODES = (2, 3, 4, 5, 8, 100, 1024)
KIB, MIB = 1 << 10, 1 << 20


@pytest.mark.parametrize("nodes", NODES)
def test_a_ring_moves_the_least_bytes(nodes: int) -> None:
    whole = between.ring_allreduce(nodes, 1000, lanes=2, segments=3)
    assert whole.messages == 2 * (nodes - 1)
    assert whole.sends == 2 * (nodes - 1) * 2
    assert whole.wire_bytes == pytest.approx(2 * (nodes - 1) / nodes * 1000)
    assert whole.reduced == pytest.approx((nodes - 1) / nodes * 1000 / 2)


@pytest.mark.parametrize("nodes", NODES)
def test_recursive_doubling_takes_the_steps_of_its_schedule(nodes: int) -> None:
    """Messages on the path of the rank that waits for most, as the kernel's schedule has them."""
    full = 1
    while 2 * full <= nodes:
        full *= 2
    exchanges = sum(1 for step in range(20) if 1 << step < full)
    lends = 2 if nodes > full else 0
    found = between.recursive_doubling(nodes, 100)
    assert (found.messages, found.wire_bytes) == (exchanges + lends, 100 * (exchanges + lends))
    assert found.reduced == 100 * (exchanges + lends / 2)


@pytest.mark.parametrize("nodes", [2, 4, 8, 1024])
def test_rabenseifner_halves_and_doubles(nodes: int) -> None:
    halves = [1000 / 2**step for step in range(1, int(log2(nodes)) + 1)]
    found = between.rabenseifner_allreduce(nodes, 1000)
    assert found.messages == 2 * len(halves)
    assert found.wire_bytes == pytest.approx(2 * sum(halves))
    assert found.reduced == pytest.approx(sum(halves))


def test_rabenseifner_beyond_a_power_of_two_sends_all_of_it_twice_more() -> None:
    assert between.rabenseifner_allreduce(5, 1000) == between.rabenseifner_allreduce(
        4, 1000
    ) + Counts(2, 0, 2000, reduced=1000)


@pytest.mark.parametrize("nodes", NODES)
def test_a_chain_takes_the_array_once_and_a_segment_for_each_further_link(nodes: int) -> None:
    """The last segment's arrival, with all links moving a segment at a time."""
    segments, free_at = 7, [0.0] * nodes
    arrived = 0.0
    for _ in range(segments):
        arrived = 0.0
        for link in range(nodes - 1):
            arrived = max(arrived, free_at[link]) + 1.0
            free_at[link] = arrived
    found = between.chain(nodes, nbytes=7.0, segment_bytes=1.0)
    assert found.wire_bytes == arrived
    assert found.messages == nodes - 1


@pytest.mark.parametrize("nodes", NODES)
def test_a_tree_reaches_every_node(nodes: int) -> None:
    reached, steps = 1, 0
    while reached < nodes:
        reached, steps = 2 * reached, steps + 1
    found = between.binomial_tree(nodes, 10)
    assert (found.messages, found.wire_bytes) == (steps, 10 * steps)


@pytest.mark.parametrize(("ranks", "nodes"), [(4, 4), (8, 4), (6, 3), (12, 2)])
def test_bruck_and_direct_messages_cross_links_as_often_as_ranks_of_other_nodes_need(
    ranks: int, nodes: int
) -> None:
    layout, each = Layout(ranks, nodes), 16
    most = layout.most
    crossing, messages, have = 0, 0, 1
    while have < ranks:
        blocks = min(have, ranks - have)
        # Ranks 0 ... most - 1 are on one node; each hears from the one that is `have` after it.
        crossing += sum(each * blocks for rank in range(most) if rank + have >= most)
        messages, have = messages + 1, 2 * have
    assert bruck_allgather(layout, ranks * each) == Counts(messages, 0, crossing)
    away = ranks - most
    assert exchange_all(layout, ranks * each).wire_bytes == most * away * each
    assert gather_to_root(layout, ranks * each).wire_bytes == away * each
    assert gather_to_root(layout, ranks * each).sends == ranks - 2


def test_headers_travel_with_short_arrays() -> None:
    layout = Layout(8, 4)
    assert header_exchange(layout).wire_bytes == 2 * HEAD_BYTES
    short = call("allreduce", 8, layout)
    assert short.wire_bytes == 2 * (HEAD_BYTES + 8)
    assert (short.messages, short.steps) == (2, 2)
    assert call("barrier", 0, layout) == header_exchange(layout)


@pytest.mark.parametrize("where", [Layout(4, 4), Layout(8, 4), Layout(64, 32)])
def test_the_library_takes_a_ring_from_16_kib_for_each_lane_of_each_node(where: Layout) -> None:
    least = built_in_sizes.RING_BYTES * where.ranks
    assert algorithm_name("allreduce", least - 4, where) == "recursive doubling"
    assert algorithm_name("allreduce", least, where) == "ring"
    assert algorithm_name("bcast", least - 4, where) == "binomial tree"
    assert algorithm_name("bcast", least, where) == "chain"
    assert algorithm_name("allreduce", built_in_sizes.SHORT_BYTES, where) == "with the headers"


def test_segments_hold_blocks_between_the_shortest_and_the_longest_message() -> None:
    for nbytes in (64 * KIB, 100 * KIB, MIB, 100 * MIB):
        cut = cut_ring(nbytes, Layout(4, 4))
        block = cut.nbytes / 4
        assert built_in_sizes.RING_BYTES <= block <= built_in_sizes.RING_MOST_BYTES
        assert cut.count == ceil(nbytes / cut.nbytes)


def test_the_ring_of_the_library_carries_headers_first_and_the_node_part_around() -> None:
    layout, nbytes = Layout(8, 4), 4 * MIB
    found = call("allreduce", nbytes, layout)
    ring = between.ring_allreduce(4, nbytes, 2, cut_ring(nbytes, layout).count)
    assert found.wire_bytes == ring.wire_bytes + 2 * HEAD_BYTES
    assert found.copied == 2 * nbytes + on_node("barrier", 0, Node(2)).copied
    assert found.reduced == pytest.approx(ring.reduced + nbytes)


def test_one_node_has_no_messages_and_one_rank_no_cost() -> None:
    for op in OPS:
        found = call(op, 1 << 20, Layout(4, 1))
        assert (found.messages, found.sends, found.wire_bytes) == (0, 0, 0)
        assert found.steps > 0
        assert call(op, 1 << 20, Layout(1, 1)) == Counts()


def test_every_count_grows_with_the_size() -> None:
    for op in set(OPS) - {"barrier"}:
        for layout in (Layout(2, 1), Layout(4, 1), Layout(4, 4), Layout(8, 4)):
            few, many = (call(op, n, layout).vector() for n in (4 * MIB, 64 * MIB))
            assert (many >= few).all(), (op, layout, dict(zip(NAMES, many - few, strict=True)))


def test_layouts_fill_nodes() -> None:
    assert layout_of(1, Node(4)) == Layout(1, 1)
    assert layout_of(9, Node(4)) == Layout(9, 3)
    assert (layout_of(9, Node(4)).lanes, layout_of(10, Node(4)).most) == (3, 4)
