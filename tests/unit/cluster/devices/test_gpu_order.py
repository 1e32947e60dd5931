"""MPISTRAT_GPU_ORDER names the GPU of each local rank where all ranks see all GPUs."""

import pytest

from mpistrat import config
from mpistrat.cluster.devices import gpu_order
from mpistrat.cluster.devices.gpu_binding import SeenGpus, bound_devices, bound_gpus, idle_gpus
from mpistrat.errors import ClusterError, UsageError


def node(host, *seen):
    return [SeenGpus(host, tuple(buses)) for buses in seen]


def dealt(everyone):
    return [bound_gpus(everyone, rank) for rank in range(len(everyone))]


@pytest.fixture
def order(monkeypatch):
    return lambda text: monkeypatch.setenv("MPISTRAT_GPU_ORDER", text)


@pytest.mark.parametrize(
    ("text", "everyone", "wanted"),
    [
        ("3,2,1,0", node("a", *["0123"] * 4), [(3,), (2,), (1,), (0,)]),
        ("2, 0", node("a", *["01234"] * 2), [(2,), (0,)]),
        ("3,2,1,0", node("a", *["0123"] * 2), [(3, 2), (1, 0)]),
        ("1,0", node("a", *["01"] * 4), [(1,), (1,), (0,), (0,)]),
        ("1,0,1,0", node("a", *["01"] * 4), [(1,), (0,), (1,), (0,)]),
        ("1,0", node("a", *["01"] * 2) + node("b", *["45"] * 2), [(1,), (0,), (1,), (0,)]),
        # Indices are in the order of the node's first rank.
        ("1,0", node("a", "01", "10"), [(1,), (1,)]),
        ("", node("a", *["01"] * 2), [(0,), (1,)]),
        # Bound by the launcher, or nothing to share: as without.
        ("1,0", node("a", "0", "1"), [(0,), (0,)]),
        ("1,0", node("a", "01", "23"), [(0, 1), (0, 1)]),
        ("3,2,1,0", node("a", "0123"), [(0, 1, 2, 3)]),
        ("3,2,1,0", node("a", "", ""), [(), ()]),
    ],
)
def test_the_gpus_of_each_rank(order, text, everyone, wanted):
    order(text)
    assert dealt(everyone) == wanted


def test_device_strings_and_idle_gpus_follow(order):
    order("3,0")
    everyone = node("a", *["0123"] * 2)
    assert bound_devices(everyone, 0, 5) == ("/job:worker/replica:0/task:5/device:GPU:3",)
    assert idle_gpus(everyone) == {"a": 2}


@pytest.mark.parametrize(
    ("text", "ranks"), [("0,1,2", 4), ("0,1", 3), ("0,0,1,1", 2), ("4,0,1,2", 4), ("1,9", 2)]
)
def test_an_order_that_does_not_fit_is_an_error_on_all_ranks(order, text, ranks):
    order(text)
    everyone = node("b", "x") + node("a", *["0123"] * ranks)
    for rank in range(ranks + 1):
        with pytest.raises(ClusterError) as caught:
            bound_gpus(everyone, rank)
        assert f"MPISTRAT_GPU_ORDER={text}, but node a has {ranks} ranks that see 4 GPUs" in str(
            caught.value
        )
        assert f"expected {ranks} indices below 4, one for each rank, or" in str(caught.value)


@pytest.mark.parametrize("text", ["a", "0,", ",0", "0,,1", "-1,0", "0;1", "0 1", "1.0", "²"])
def test_an_order_that_is_no_list_of_numbers(order, text):
    order(text)
    with pytest.raises(UsageError, match=r"MPISTRAT_GPU_ORDER=.*: expected indices of GPUs"):
        config.gpu_order()


def test_all_ranks_have_the_same():
    assert "MPISTRAT_GPU_ORDER" in config.AGREED


def test_where_it_is_not_used_it_says_why(order, monkeypatch):
    told = []
    monkeypatch.setattr(gpu_order, "warn_once", lambda _logger, _key, text: told.append(text))
    gpu_order.warn_unused(node("b", "0", "1"))
    order("1,0")
    gpu_order.warn_unused(node("a", *["01"] * 2))
    gpu_order.warn_unused(node("c", "", ""))
    assert not told
    gpu_order.warn_unused(node("b", "0", "1"))
    assert "MPISTRAT_GPU_ORDER is not used on b: no two ranks there see the same" in told[0]
