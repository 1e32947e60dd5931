"""Each call sends the messages and bytes that the backend's docstring states, and no more.

The ranks share a machine and pretend to be on several nodes. Their messages are counted where they
are handed to MPI (tests/helpers/message_counts).
"""

from __future__ import annotations

import pytest

from helpers.message_counts.formulas import Cost, Shape
from helpers.message_counts.job import Phase, counted_job
from mpistrat.collectives.operations.objects import FRAME_BYTES, gathered_frame_bytes
from mpistrat.system.kernels import why_no_kernels
from mpistrat.testing.sets import repeats, takes_long

pytestmark = pytest.mark.skipif(why_no_kernels() is not None, reason=str(why_no_kernels()))

PROGRAM = "helpers.message_counts.collectives_program"
BLOCKS = (4, 256, 4 << 10, 16 << 10, 80 << 10)
"""Bytes a rank: sent with the headers; short; of middle length; by rings, in one turn and more."""

REDUCTIONS = ("allreduce", "reduce", "reduce_scatter")
CALLS = (*REDUCTIONS, "bcast", "allgather", "gather", "scatter", "alltoall")

Counted = tuple[Shape, dict[str, Phase]]


@pytest.fixture(
    scope="module",
    params=[
        pytest.param((4, 1), id="4 ranks"),
        pytest.param((8, 1), id="8 ranks", marks=takes_long(unit="file")),
        pytest.param((16, 1), id="16 ranks", marks=takes_long(unit="file")),
        pytest.param((8, 2), id="8 ranks on 4 nodes", marks=takes_long(unit="file")),
        pytest.param((6, 1), id="6 ranks", marks=takes_long(unit="file")),
        pytest.param((16, 4), id="16 ranks on 4 nodes", marks=takes_long(unit="file")),
        pytest.param((32, 1), id="32 ranks", marks=repeats()),
        pytest.param((64, 1), id="64 ranks", marks=repeats()),
        pytest.param((64, 8), id="64 ranks on 8 nodes", marks=repeats()),
    ],
)
def counted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Counted:
    ranks, node_size = request.param
    arguments = ["-m", PROGRAM, "hierarchical", *(str(block * ranks) for block in BLOCKS)]
    folder = tmp_path_factory.mktemp("counts")
    phases = counted_job(arguments, ranks, node_size, folder, timeout_s=40 + 4 * ranks)
    return Shape(ranks // node_size, node_size), phases


def sent(phase: Phase) -> Cost:
    assert not phase.collectives(), "the kernels send their messages themselves"
    return Cost(phase.most("messages"), phase.most("nbytes"))


def test_collectives_send_what_their_formulas_say(counted: Counted) -> None:
    shape, phases = counted
    wrong = {}
    for block in BLOCKS:
        for call in CALLS:
            nbytes = block * shape.ranks
            expected, found = getattr(shape, call)(nbytes), sent(phases[f"{call} {nbytes}"])
            if found != expected:
                wrong[f"{call} of {nbytes} bytes"] = (found, expected)
    assert not wrong


def test_the_gate_alone(counted: Counted) -> None:
    shape, phases = counted
    assert sent(phases["barrier"]) == shape.gate()
    assert sent(phases["close"]) == shape.gate()
    assert sent(phases["end"]) == Cost(0, 0)


def test_objects(counted: Counted) -> None:
    """One frame a rank; between many ranks then the pickled objects, of 200 bytes at most."""
    shape, phases = counted
    steps = 2 * (shape.ranks - 1).bit_length()
    frame = gathered_frame_bytes(shape.ranks)
    calls, block = (1, frame) if frame > 200 else (2, frame + 208)
    messages, nbytes = sent(phases["allgather_object"])
    assert messages <= calls * steps
    assert nbytes <= block * shape.ranks + calls * steps * 264
    messages, nbytes = sent(phases["bcast_object"])
    assert messages <= steps
    assert nbytes <= steps * (FRAME_BYTES + 264)


def test_start_up(counted: Counted) -> None:
    """A few collectives of MPI, and one all-gather of what the ranks say of themselves."""
    shape, phases = counted
    start, size, steps = phases["start"], shape.ranks, (shape.ranks - 1).bit_length()
    texts = 5 * 512 * shape.lanes if shape.lanes > 1 else 0  # how a node's ranks share memory
    assert start.collectives() == {
        "Allgather": (1, 16 * size),  # where each process can be asked after
        # The names of backends, the nodes, and these.
        "Allgatherv": (2 + 5 * (shape.lanes > 1), 48 * size + texts),
        "Allreduce": (1, 32),
        "Comm_dup": (1, 0),
        "Comm_split": (1, 0),
        **({"Bcast": (2, 10)} if shape.lanes > 1 else {}),
    }
    assert start.most("messages") <= 4 * steps
    assert start.most("nbytes") <= 512 * size + 4 * steps * 64
    assert start.most("partners") <= 2 * steps
    assert start.most("connections") <= 1
