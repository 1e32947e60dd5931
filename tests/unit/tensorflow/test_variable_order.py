"""Judging the names of new variables: unequal ones may be right, swapped ones are not."""

import re
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

pytest.importorskip("tensorflow")

from mpistrat.errors import MismatchError
from mpistrat.tensorflow.graph.same_variables.variable_order import NameOrder, name_of, named


def created(*ranks, op="ibcast(float32, shape=(2,), root=0)", ops=None):
    """Create variables whose names each of `ranks` has in its order; return how many."""
    num = 0
    order = NameOrder(SimpleNamespace(labelled=lambda label: nullcontext()))
    for names in zip(*ranks, strict=True):
        calls = {
            rank: f"{(ops or [op] * len(ranks))[rank]} (the first value of variable '{name}') at"
            f" train.py:{rank}"
            for rank, name in enumerate(names)
        }
        # The first attempt fails where the names differ, as a broadcast with labels does.
        attempts = iter([MismatchError("they differ", calls), None][len(set(names)) == 1 :])

        def broadcast(attempts=attempts):
            error = next(attempts)
            if error is not None:
                raise error

        order.done(names[0], broadcast)
        num += 1
    return num


@pytest.mark.parametrize(
    "ranks",
    [
        ("ab", "ba"),
        ("abc", "bca"),
        ("abc", "bcd"),
        ("ab", "ab", "ba"),
        (["x_1", "x_2"], ["x_2", "x_1"]),
        (["x_1", "x_2", "x_3"], ["x_2", "x_3", "x_1"]),
        (["a/x", "y", "b/x"], ["b/x", "y", "a/x"]),
    ],
)
def test_swapped(ranks):
    with pytest.raises(MismatchError, match="in different orders"):
        created(*ranks)


@pytest.mark.parametrize(
    "ranks",
    [
        (["x_1", "x_2"], ["x", "x_1"]),
        (["x", "x_1", "x_2"], ["x_1", "x_2", "x_3"]),
        (["v0", "w0"], ["v1", "w1"], ["v2", "w2"]),
        (["chief", "x"], ["worker", "x"]),
        (["x_1", "y", "y_1"], ["x", "y_1", "y_2"]),
    ],
)
def test_correct(ranks):
    assert created(*ranks) == len(ranks[0])


def test_other_calls_are_left_as_they_are():
    with pytest.raises(MismatchError, match="they differ"):
        created("a", "b", ops=["ibcast(float32, shape=(2,), root=0)", "ibcast(int32)"])


def test_the_error_names_both_variables_of_each_rank():
    with pytest.raises(MismatchError) as error:
        created(["a/kernel", "b/kernel"], ["b/kernel", "a/kernel"])
    assert re.findall(r"'(\S+)', then '(\S+)'", str(error.value)) == [
        ("a/kernel", "b/kernel"),
        ("b/kernel", "a/kernel"),
    ]


def test_the_name_of_a_block_comes_first():
    with named("outer/kernel"):
        assert name_of("kernel") == "outer/kernel"
    assert [name_of("kernel"), name_of(None)] == ["kernel", "Variable"]
