"""The gate: agreement on every call, and failures and refusals that the peers are told of."""

import threading
from types import SimpleNamespace

import numpy as np
import pytest

from mpistrat.collectives import Communicator
from mpistrat.collectives.backends.threads import ThreadComm, ThreadsBackend, ThreadWorld
from mpistrat.collectives.checking.fingerprint import Signature
from mpistrat.collectives.checking.gate import Gate
from mpistrat.errors import CommunicationError, MismatchError, PeerLostError, UsageError
from mpistrat.testing.threads import run_ranks


def usable(comm):
    return comm.allreduce(1) == comm.size


# -------------------------------------------------------------------------------- failures


def test_all_ranks_that_fail_alike_can_go_on():
    def rank(handle):
        comm = Communicator(handle)
        for i in range(3):
            comm.fail(ValueError(f"step {i}"))
            assert usable(comm)
        assert comm.health.peers.failures == 3
        comm.close()

    run_ranks(3, rank)


def test_one_rank_that_fails_alone_breaks_its_peers():
    all_have_seen_it = threading.Barrier(3)

    def rank(handle):
        comm = Communicator(handle)
        if comm.rank == 1:
            comm.fail(ValueError("on this rank only"))
            all_have_seen_it.wait(10)
            with pytest.raises(PeerLostError, match=r"rank [02] gave up with PeerLostError"):
                comm.barrier()
        else:
            with pytest.raises(PeerLostError, match="ValueError: on this rank only") as caught:
                comm.barrier()
            assert caught.value.rank in (0, 1, 2)
            with pytest.raises(CommunicationError, match="is broken on rank"):
                comm.barrier()
            all_have_seen_it.wait(10)
        comm.close()

    run_ranks(3, rank)


def test_rank_that_failed_alone_and_goes_on_is_found_in_the_next_call():
    both_are_done = threading.Barrier(2)

    def rank(handle):
        comm = Communicator(handle)
        if comm.rank == 0:
            comm.fail(KeyError("x"))
        for _ in range(2):  # PeerLostError or MismatchError, and the first may break it for good
            with pytest.raises(CommunicationError, match="KeyError: 'x'"):
                comm.barrier()
        both_are_done.wait(10)
        comm.health.break_off(RuntimeError("the test is over"))
        comm.close()

    run_ranks(2, rank)


def test_a_rank_that_others_know_to_be_dead_is_noted_by_all():
    """One of them watches; the others have it from that one, and send the dead nothing either."""
    has_left = threading.Barrier(4)

    def rank(handle):
        comm = Communicator(handle)
        marked = []
        control = comm.gate.control
        control.notices.mark_lost = marked.append
        if comm.rank == 0:
            control.liveness.ended = lambda wait=0: [2, 3]
        if comm.rank > 1:
            has_left.wait(10)
            return
        with pytest.raises(PeerLostError) as caught:
            comm.barrier(timeout=10)
        has_left.wait(10)
        assert caught.value.rank == 2
        assert "the processes of ranks 2, 3 have ended" in str(caught.value)
        assert set(marked) == {2, 3}
        assert comm.health.peers.ended == {2, 3}

    run_ranks(4, rank)


def test_a_single_rank_needs_no_peers():
    comm = Communicator(ThreadWorld(1).comms()[0])
    comm.fail(ValueError())
    assert comm.health.peers.failures == 0
    assert usable(comm)


# --------------------------------------------------------------------------------- refusals


def test_refusal_of_one_rank_is_a_mismatch_for_the_others():
    def rank(handle):
        comm = Communicator(handle)
        if comm.rank == 0:
            with pytest.raises(UsageError, match="found by the caller"):
                comm.refuse(UsageError("found by the caller"))
        else:
            with pytest.raises(MismatchError, match="refused: UsageError: found by the caller"):
                comm.barrier()
        assert usable(comm)
        comm.close()

    run_ranks(3, rank)


def test_refusal_of_all_ranks_raises_each_its_own():
    def rank(handle):
        comm = Communicator(handle)
        with pytest.raises(KeyError, match=f"mine {comm.rank}"):
            comm.refuse(KeyError(f"mine {comm.rank}"))
        assert usable(comm)
        comm.close()

    run_ranks(3, rank)


def test_long_report_is_cut_and_stays_text():
    def rank(handle):
        comm = Communicator(handle)
        if comm.rank == 0:
            with pytest.raises(UsageError):
                comm.refuse(UsageError("ä€" * 5000))
        else:
            with pytest.raises(MismatchError, match="ä€ä€") as caught:
                comm.barrier()
            assert len(caught.value.calls[0].encode()) < 1100
        comm.close()

    run_ranks(2, rank)


def test_report_of_a_long_list_names_the_array_that_differs():
    def rank(handle):
        comm = Communicator(handle)
        arrays = [np.ones((2, 3), "f4")] * 300
        if comm.rank == 1:
            arrays[290] = np.ones((3, 2), "f4")
        with pytest.raises(MismatchError, match=r"^Shape mismatch") as caught:
            comm.allreduce_many(arrays)
        rows = str(caught.value).splitlines()[1:3]
        assert "300 arrays, first difference at arrays[290]: float32 (2, 3)" in rows[0]
        assert "300 arrays, first difference at arrays[290]: float32 (3, 2)" in rows[1]
        comm.close()

    run_ranks(2, rank)


# ---------------------------------------------------------------------------------- headers


def gate_of_one():
    backend = ThreadsBackend(ThreadComm(ThreadWorld(1), 0))
    return Gate(backend, backend.control)


def test_crossing_counts_calls_and_carries_extras_and_payload():
    gate = gate_of_one()
    payload = np.array([1.5, -2.0])
    assert list(gate.cross(Signature("a"), extra=41, payload=payload)) == []
    assert (gate.call_log.sequence, gate.call_log.completed) == (1, 1)
    assert gate.extras.tolist() == [41]
    np.testing.assert_array_equal(gate.payloads(payload), [[1.5, -2.0]])
    assert gate.payloads(np.empty(0)).shape == (1, 0)


def test_fast_call_under_way_is_not_completed():
    gate = gate_of_one()
    assert list(gate.cross(Signature("a"))) == []
    gate.call_log._fast = SimpleNamespace(is_under_way=True)
    assert (gate.call_log.sequence, gate.call_log.completed) == (1, 0)
    gate.call_log.is_crossing = True  # it is one call all the same
    assert gate.call_log.completed == 0


def test_what_ranks_bring_is_seen_by_all():
    def rank(handle):
        comm = Communicator(handle)
        pieces = comm.allgather(np.zeros((comm.rank, 2)))
        assert comm.gate.extras.tolist() == [0, 1, 2]
        assert comm.call_log.sequence == comm.call_log.completed
        assert pieces.shape == (3, 2)
        comm.close()

    run_ranks(3, rank)
