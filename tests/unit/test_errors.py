"""The tree of exceptions is the one that is drawn, and fits ``except`` clauses for TensorFlow."""

import pickle
import re

import pytest

from mpistrat import errors

LINE = re.compile(r"^ {4}[│ ]*(?:[├└]── )?(\w+Error)(?: \((\w+)\))?", re.MULTILINE)


def drawn():
    """Return (name, parent, built-in base) of each line of the drawing."""
    parents: dict[int, str] = {}
    for match in LINE.finditer(errors.__doc__):
        depth = (match.start(1) - match.start()) // 4
        parents[depth] = match[1]
        yield match[1], parents.get(depth - 1), match[2]


def test_the_drawing_is_the_tree():
    names = []
    for name, parent, builtin in drawn():
        kind = getattr(errors, name)
        names.append(name)
        if name != "MpistratError":
            assert kind.__bases__[0] is getattr(errors, parent)
        if builtin is not None:
            assert issubclass(kind, getattr(__import__("builtins"), builtin))
    assert sorted(names) == sorted(errors.__all__)


@pytest.mark.parametrize(
    ("kind", "builtin"),
    [
        (errors.UsageError, ValueError),
        (errors.ArgumentTypeError, TypeError),
        (errors.ArgumentTypeError, ValueError),
        (errors.ContextError, RuntimeError),
        (errors.ClosedError, RuntimeError),
        (errors.ClusterError, RuntimeError),
        (errors.BackendNotFoundError, ValueError),
        (errors.BackendUnavailableError, RuntimeError),
        (errors.CommunicationTimeoutError, TimeoutError),
        (errors.PeerLostError, RuntimeError),
        (errors.MismatchError, ValueError),
        (errors.CoordinatorError, RuntimeError),
    ],
)
def test_code_written_for_tensorflow_catches_it(kind, builtin):
    with pytest.raises(builtin, match="the text"):
        raise kind("the text")
    assert str(kind("the text")) == "the text"


def test_what_errors_carry():
    assert errors.CommunicationTimeoutError("x", (1, 2)).missing == (1, 2)
    assert errors.CommunicationTimeoutError("x").missing == ()
    assert errors.PeerLostError("x", rank=3).rank == 3
    assert errors.PeerLostError("x").rank == -1
    assert errors.MismatchError("x", {0: "a"}).calls == {0: "a"}
    assert errors.MismatchError("x").calls == {}


@pytest.mark.parametrize("name", errors.__all__)
def test_errors_travel_between_processes(name):
    error = pickle.loads(pickle.dumps(getattr(errors, name)("the text")))
    assert type(error) is getattr(errors, name)
    assert str(error) == "the text"


def test_attributes_travel_too():
    error = pickle.loads(pickle.dumps(errors.CommunicationTimeoutError("x", (1,))))
    assert error.missing == (1,)
    assert pickle.loads(pickle.dumps(errors.MismatchError("x", {0: "a"}))).calls == {0: "a"}
