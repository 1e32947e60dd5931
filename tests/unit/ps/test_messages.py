"""Messages to a parameter server: what travels, and that a ps knows all of them."""

import inspect
import pickle

import numpy as np
import pytest

from mpistrat.ps import messages
from mpistrat.ps.messages import Change, Message, Question, decoded
from mpistrat.ps.server.operations import Operations
from mpistrat.ps.transport.encoding import encoded
from mpistrat.ps.transport.roles import Member

KINDS = [
    one
    for one in vars(messages).values()
    if inspect.isclass(one)
    and issubclass(one, Message)
    and one not in (Message, Question, Change, messages.Fail)
]


@pytest.fixture
def operations():
    made = Operations(Member("ps", 0))
    yield made
    made.close()


def travelled(message):
    return decoded(pickle.loads(pickle.dumps(encoded(message), 5)))


@pytest.mark.parametrize(
    "message",
    [
        messages.Read(3, -1),
        messages.Stage(1, 2, None),
        messages.Flush(),
        messages.Fail("no memory"),
        messages.Several([encoded(messages.Read(3, -1))]),
    ],
)
def test_a_message_arrives_as_it_was_sent(message):
    found = travelled(message)
    assert found == message
    assert type(found) is type(message)


def test_only_plain_values_travel():
    """Objects of classes would be several times as slow to pickle."""
    assert encoded(messages.Read(3, -1)) == ("Read", 3, -1)


def test_a_message_of_another_kind_is_an_error():
    with pytest.raises(ValueError, match="of kind 'Reed'; expected one of Fail, "):
        decoded(("Reed", 3, -1))


def test_there_are_as_many_kinds_as_documented():
    assert {one.__name__ for one in KINDS} <= set(messages.__all__)
    assert len(KINDS) == 22


@pytest.mark.parametrize("kind", KINDS)
def test_a_ps_knows_what_to_do(kind, operations):
    assert kind in operations._by_class


def test_questions_are_answered_and_changes_are_made(operations):
    operations.carry_out(travelled(messages.Make(1, np.arange(6.0).reshape(3, 2))))
    operations.carry_out(travelled(messages.Add(1, np.ones((3, 2)))))
    rows = np.array([2, 0])
    operations.carry_out(travelled(messages.Scatter(1, "sub", rows, np.ones((2, 2)))))
    version, value = operations.carry_out(travelled(messages.Read(1, -1)))
    assert value.tolist() == [[0.0, 1.0], [3.0, 4.0], [4.0, 5.0]]
    assert operations.carry_out(messages.Read(1, version)) == (version, None)
    several = messages.Several([encoded(messages.ReadRows(1, rows)), encoded(messages.Flush())])
    found, nothing = operations.carry_out(travelled(several))
    assert found.tolist() == [[4.0, 5.0], [0.0, 1.0]]
    assert nothing is None


def test_the_end_is_noted(operations):
    assert operations.end is None
    operations.carry_out(travelled(messages.End(True)))
    assert operations.end.has_lost
