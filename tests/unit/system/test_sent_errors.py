"""Exceptions as plain data: themselves where they can be read, else their class and text."""

import pickle
import threading

import pytest

from mpistrat import errors
from mpistrat.system.sent_errors import SentError


class TakesTwoError(Exception):
    """Is pickled, and cannot be read: exceptions are made again of their one message."""

    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")


class HasLockError(Exception):
    """Cannot be pickled."""

    def __init__(self, text):
        super().__init__(text)
        self.lock = threading.Lock()


class NotAnError(Exception):
    """Comes back as something else."""

    def __reduce__(self):
        return int, (7,)


class OfUser(errors.CheckpointNotFoundError):
    """A class of a program, derived from one of ours."""


def over(error, **how):
    """Return an exception as another process reads it."""
    return pickle.loads(pickle.dumps(SentError.whole(error, **how)))


def test_itself_where_it_can_be_read():
    error = errors.PeerLostError("rank 3 has gone", 3)
    error.extra = [1, 2]
    found = over(error)
    assert (found.kind, found.text) == ("PeerLostError", "rank 3 has gone")
    back = found.original()
    assert type(back) is errors.PeerLostError
    assert (str(back), back.rank, back.extra) == ("rank 3 has gone", 3, [1, 2])


def test_a_class_of_the_program():
    class LocalError(Exception):
        pass

    back = over(LocalError("here")).original()
    assert (type(back).__name__, str(back)) == ("LocalError", "here")


@pytest.mark.parametrize(
    "error", [TakesTwoError("a", "b"), HasLockError("a and b"), NotAnError("a and b")]
)
def test_its_text_where_it_cannot(error):
    found = over(error)
    assert found.pickled is None
    assert found.original() is None
    assert found.text == f"{type(error).__name__}: a and b"


def test_one_that_cannot_be_read_there_is_no_error():
    assert SentError("", "text", b"no pickle").original() is None


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (errors.UsageError("no"), errors.UsageError, "no"),
        (OfUser("no"), errors.CheckpointNotFoundError, "no"),
        (OSError("no"), errors.ClusterError, "OSError: no"),
        (KeyboardInterrupt(), errors.ClusterError, "KeyboardInterrupt: "),
    ],
)
def test_as_one_of_ours(error, kind, text):
    found = SentError.described(error)
    assert found.pickled is None
    made = found.as_ours(errors.ClusterError)
    assert type(made) is kind
    assert str(made) == text


def test_a_text_of_the_senders():
    found = over(OSError("disk"), text="Traceback ...")
    assert found.text == "Traceback ..."
    assert str(found.original()) == "disk"


class UnreadableError(Exception):
    def __str__(self):
        raise RuntimeError("no text")


def test_an_error_without_a_text_is_sent_all_the_same():
    assert "its text cannot be read" in SentError.described(UnreadableError()).text
    found = SentError.whole(UnreadableError(), "Traceback ...")
    assert found.text == "Traceback ..."
    assert isinstance(found.original(), UnreadableError)
