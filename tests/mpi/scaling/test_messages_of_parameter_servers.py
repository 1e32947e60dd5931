"""A member of a job with parameter servers has the connections that `connect_ranks` states.

The chief of W workers and S ps has W + S connections, a worker S + 1, a ps W + 1; what the chief
sends to all is one message to each, once at the end; a function is a message to one worker.
"""

from __future__ import annotations

import pytest

from helpers.message_counts.job import Phase, counted_job
from mpistrat.testing.sets import repeats, takes_long

pytestmark = takes_long(unit="file")

PROGRAM = "helpers.message_counts.parameter_servers_program"
FUNCTIONS = 12

Counted = tuple[int, int, bool, dict[str, Phase]]


@pytest.fixture(
    scope="module",
    params=[
        pytest.param((4, 0), id="4 ranks"),
        pytest.param((8, 0), id="8 ranks"),
        pytest.param((4, 1), id="4 ranks on 4 nodes"),
        pytest.param((16, 0), id="16 ranks", marks=repeats()),
        pytest.param((16, 1), id="16 ranks on 16 nodes", marks=repeats()),
        pytest.param((32, 0), id="32 ranks", marks=repeats()),
        pytest.param((64, 0), id="64 ranks", marks=repeats()),
    ],
)
def counted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Counted:
    ranks, node_size = request.param
    num_ps = ranks // 4
    arguments = ["-m", PROGRAM, str(num_ps), str(FUNCTIONS)]
    folder = tmp_path_factory.mktemp("counts")
    phases = counted_job(arguments, ranks, node_size, folder, timeout_s=40 + 4 * ranks)
    return ranks - 1 - num_ps, num_ps, node_size == 1, phases


def test_connections(counted: Counted) -> None:
    """One for each two members that talk to each other; each process makes one of its own."""
    workers, ps, is_far, phases = counted
    ranks, pairs = 1 + workers + ps, workers * ps + workers + ps
    assert phases["start"].total("connections") == ranks + (0 if is_far else pairs)


def test_start_up_uses_few_collectives(counted: Counted) -> None:
    workers, ps, _, phases = counted
    found, ranks = phases["start"].collectives(), 1 + workers + ps
    assert found.keys() <= {
        "Allgather",
        "Allgatherv",
        "Allreduce",
        "Bcast",
        "Comm_dup",
        "Comm_split",
    }
    assert sum(calls for calls, _ in found.values()) <= 12
    assert sum(nbytes for _, nbytes in found.values()) <= 3200 * ranks + 64
    assert phases["end"].collectives() == {}


def test_the_chief_speaks_to_those_whom_it_needs(counted: Counted) -> None:
    """A variable: each ps. A function: one worker. The end: everyone, once."""
    workers, ps, is_far, phases = counted
    sends = "messages" if is_far else "writes"
    assert phases["variable"].most(sends) == ps
    assert phases["functions"].most(sends) <= FUNCTIONS + workers
    everyone = workers + ps
    if is_far:
        assert phases["close"].most("partners") == everyone
        assert phases["close"].most("messages") <= 3 * everyone
    else:
        assert phases["close"].most("writes") <= everyone + 2
