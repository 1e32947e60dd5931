"""Messages to a parameter server: questions, which it answers, and changes, which it does not.

Members make these objects and the ps gets equal ones (`mpistrat.ps.transport.encoding`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from mpistrat.ps.transport.encoding import Encoded, decoder
from mpistrat.types import Array

if TYPE_CHECKING:
    from mpistrat.ps.server.optimizer_update import OptimizerUpdate
    from mpistrat.ps.transport.push_buffers import BufferedRows

__all__ = [
    "Add",
    "Apply",
    "ApplyRound",
    "Assign",
    "Change",
    "ChangeSeveral",
    "CountUp",
    "Drop",
    "End",
    "Fail",
    "Flush",
    "Make",
    "MapBuffer",
    "Message",
    "Question",
    "Read",
    "ReadRows",
    "Run",
    "Scatter",
    "ScatterBuffered",
    "Several",
    "ShareHandle",
    "Stage",
    "Subtract",
    "SumRound",
    "UnmapBuffer",
    "decoded",
]

Answer = TypeVar("Answer")


class Message:
    """A message to a member of the job."""


class Question(Message, Generic[Answer]):
    """A message that is answered with a value, and with the errors of earlier changes."""


class Change(Message):
    """A message without an answer: what goes wrong is told with the next answer."""


@dataclass
class Fail(Message):
    """The chief cannot go on; this is the last message of the job."""

    reason: str


@dataclass
class End(Question[None]):
    """The job is over; it may have lost a member before."""

    has_lost: bool


# ---------------------------------------------------------------------------------- variables


@dataclass
class Make(Question[None]):
    """Keep a new variable under a key."""

    key: int
    value: Array


@dataclass
class Drop(Change):
    """Forget a variable."""

    key: int


@dataclass
class Read(Question[tuple[int, Array | None]]):
    """Return a version and the value; None in its place if that version is `known`."""

    key: int
    known: int


@dataclass
class ReadRows(Question[Array]):
    """Return copies of some rows."""

    key: int
    rows: Array


@dataclass
class ShareHandle(Question[tuple[Any, ...]]):
    """Return what ``Shard.attach`` wants in the process of a member."""

    key: int


@dataclass
class Assign(Change):
    """Set a variable."""

    key: int
    value: Array


@dataclass
class Add(Change):
    """Add to a variable."""

    key: int
    value: Array


@dataclass
class Subtract(Change):
    """Subtract from a variable."""

    key: int
    value: Array


@dataclass
class Scatter(Change):
    """Change some rows.

    Attributes
    ----------
    method
        ``"add"``, ``"sub"``, ``"update"``, ``"mul"``, ``"div"``, ``"max"`` or ``"min"``.
    rows, values
        Indices of shape [n], and shape [n, ...]. A row that comes twice is changed twice; of
        ``"update"``, the last one counts.
    """

    key: int
    method: str
    rows: Array
    values: Array


# ----------------------------------------------------------------- rows in memory that both map


@dataclass
class MapBuffer(Question[bool]):
    """Map a push buffer of a member; return whether that was possible."""

    member: str
    namespace: str
    path: str
    nbytes: int
    name: str


@dataclass
class UnmapBuffer(Question[None]):
    """Drop the mapping of a push buffer."""

    name: str


@dataclass
class ScatterBuffered(Change):
    """Do `Scatter` with rows that are in a push buffer."""

    key: int
    method: str
    rows: BufferedRows


# ------------------------------------------------------------------------ optimizers and rounds


@dataclass
class CountUp(Question[int]):
    """Add one to a counter; return its value before."""

    key: int


@dataclass
class Apply(Change):
    """Change a variable and its slots by an optimizer's rule."""

    key: int
    update: OptimizerUpdate


@dataclass
class Stage(Change):
    """Keep an update of a call until its round ends; None is one more in a count."""

    call: int
    key: int
    update: OptimizerUpdate | None


@dataclass
class SumRound(Question[None]):
    """Sum what some calls of a round have staged; forget what others have."""

    calls: list[int]


@dataclass
class ApplyRound(Question[str]):
    """Apply what `SumRound` has summed; return for what there is no memory, or ""."""


# --------------------------------------------------------------------------------------- others


@dataclass
class Flush(Question[None]):
    """Return once all earlier messages of this member are carried out."""


@dataclass
class Run(Question[Any]):
    """Call ``function(context, *arguments)`` on the ps; return its result."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]


@dataclass
class Several(Question[list[Any]]):
    """Return the answers to several encoded questions."""

    questions: list[Encoded]


@dataclass
class ChangeSeveral(Change):
    """Carry out several encoded changes."""

    changes: list[Encoded]


decoded = decoder((Fail, *Question.__subclasses__(), *Change.__subclasses__()))
