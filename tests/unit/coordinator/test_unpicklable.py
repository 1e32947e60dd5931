"""Messages name the part that cannot be sent to a worker, accuse no other, and raise nothing."""

import functools
import threading

import numpy as np
import pytest

from mpistrat.coordinator.unpicklable import unpicklable_part

LOCK = threading.Lock()
log = threading.Lock()  # the name of an attribute that `reads_an_attribute` reads


class BadRepr:
    def __repr__(self):
        raise RuntimeError("bad repr")


class Proxy:
    """As of a library whose objects stand for others."""

    @property
    def __dict__(self):
        raise RuntimeError("outside of a context")

    def __reduce__(self):
        raise TypeError("it does not travel")


def with_default(x, lock=LOCK):
    return x


def reads_an_attribute(x):
    return np.log(x), Proxy


def in_a_circle():
    found = []
    found += [found, LOCK]
    return found


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (LOCK, ""),
        ([1, LOCK], r"its [1], of type lock"),
        ({"k" * 5000: LOCK}, "its ['kkkkkkkkkkkk...kkkkkkkkkkkkk'], of type lock"),
        (with_default, "lock, of type lock"),
        (functools.partial(with_default, lock=LOCK), "keywords['lock'], of type lock"),
        (lambda: LOCK, "LOCK, of type lock"),
        (in_a_circle(), "its [1], of type lock"),
        (reads_an_attribute, ""),
        (Proxy(), ""),
        ([Proxy()], "its [0], of type Proxy"),
    ],
    ids=range(10),
)
def test_what_is_named(value, expected):
    assert unpicklable_part(value) == expected


def test_a_key_that_cannot_be_shown():
    assert unpicklable_part({BadRepr(): LOCK}).endswith("], of type lock")
