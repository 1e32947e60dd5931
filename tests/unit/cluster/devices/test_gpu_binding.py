"""A node's GPUs are dealt out to its ranks, or taken as the launcher dealt them out."""

import time

import pytest

from mpistrat.cluster.devices.gpu_binding import SeenGpus, all_bound_gpus, bound_gpus, idle_gpus
from mpistrat.errors import ClusterError


def node(host, *seen):
    return [SeenGpus(host, tuple(buses)) for buses in seen]


def dealt(everyone):
    return [bound_gpus(everyone, rank) for rank in range(len(everyone))]


@pytest.mark.parametrize(
    ("everyone", "wanted"),
    [
        (node("a", "", ""), [(), ()]),
        (node("a", "0123"), [(0, 1, 2, 3)]),
        (node("a", *["0123"] * 4), [(0,), (1,), (2,), (3,)]),
        (node("a", *["0123"] * 2), [(0, 1), (2, 3)]),
        (node("a", *["0123"] * 3), [(0,), (1,), (2,)]),
        (node("a", *["0"] * 3), [(0,), (0,), (0,)]),
        (node("a", *["01"] * 4), [(0,), (0,), (1,), (1,)]),
        (node("a", "0", "1", "2"), [(0,), (0,), (0,)]),
        (node("a", "01", "23"), [(0, 1), (0, 1)]),
        (node("a", "01", "01") + node("b", "01", "01"), [(0,), (1,), (0,), (1,)]),
        (node("a", "01", "01") + node("b", "0", "1"), [(0,), (1,), (0,), (0,)]),
        (node("a", "0") + node("b", "0"), [(0,), (0,)]),
        # As MIG has it: the parts of a GPU, one a rank, have its address.
        (node("a", "0", "0"), [(0,), (0,)]),
        # The order in which a rank sees them is its own.
        (node("a", "01", "10"), [(0,), (0,)]),
    ],
)
def test_gpus_are_dealt_out(everyone, wanted):
    assert dealt(everyone) == wanted
    assert all_bound_gpus(everyone) == wanted


def test_thousands_of_ranks_take_no_time():
    """A rank asks for all of them in the doctor; minutes would pass if each looked at all."""
    everyone = [one for index in range(1000) for one in node(f"n{index}", *["0123"] * 4)]
    begin = time.process_time()
    assert all_bound_gpus(everyone)[-1] == (3,)
    assert time.process_time() - begin < 2


def test_leftover_gpus_are_counted_by_node():
    assert idle_gpus(node("a", *["0123"] * 3) + node("b", "0", "1")) == {"a": 1}
    assert idle_gpus(node("a", *["01"] * 2)) == {}
    assert idle_gpus(node("a", "", "")) == {}


@pytest.mark.parametrize(
    ("everyone", "text"),
    [
        (node("a", "01", ""), r"ranks \[1\] \(on a\) can see no GPU"),
        (node("a", "01") + node("b", ""), r"ranks \[1\] \(on b\).*devices=\['CPU:0'\] on all"),
        (node("a", "0", "01"), r"node a .*rank 0: 0; rank 1: 0, 1; .*--gpus-per-task"),
        (node("b", "0") + node("a", "01", "12", "3"), r"node a .*some GPUs in common"),
    ],
)
def test_what_fits_no_pattern_is_refused_for_every_rank(everyone, text):
    for rank in range(len(everyone)):
        with pytest.raises(ClusterError, match=text):
            bound_gpus(everyone, rank)
