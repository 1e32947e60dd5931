"""The gate: agreement on every call, failures of replica functions, and the wording of reports."""

import subprocess
import sys
import threading
from types import SimpleNamespace

import numpy as np
import pytest

from mpistrat.collectives import Communicator
from mpistrat.collectives.backends.threads import ThreadComm, ThreadsBackend, ThreadWorld
from mpistrat.collectives.checking import fingerprint
from mpistrat.collectives.checking.fingerprint import Signature, describe, digest, mismatch_text
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


# ------------------------------------------------------------------------------------ lines


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
    gate.call_log._is_crossing = True  # it is one call all the same
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


# ------------------------------------------------------------------------------ fingerprints


FULL = Signature("allreduce", "sum", np.dtype("float32"), (2, 3), 1, 0, 99)


def test_digest_differs_in_every_field_and_fits_in_a_word():
    others = ["reduce", "max", np.dtype("float64"), (3, 2), 0, 1, 98]
    signatures = [
        FULL,
        *(FULL._replace(**{k: v}) for k, v in zip(FULL._fields, others, strict=True)),
    ]
    signatures += [Signature("barrier"), Signature("close"), Signature("bcast", shape=(1, 2))]
    digests = [digest(signature) for signature in signatures]
    assert len(set(digests)) == len(digests)
    assert all(fingerprint.INVALID < d < 2**63 for d in digests)


@pytest.mark.parametrize("seed", ["0", "4711"])
def test_digest_is_the_same_in_every_process(seed):
    code = (
        "import numpy as np; from mpistrat.collectives.checking.fingerprint import *;"
        "print(digest(Signature('allreduce', 'sum', np.dtype('f4'), (2, 3), np.int64(1), 0, 99)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(done.stdout) == digest(FULL)


def test_calls_are_described_as_a_user_writes_them():
    assert describe(Signature("barrier")) == "barrier()"
    assert describe(FULL) == (
        "allreduce(op=sum, dtype=float32, shape=(2, 3), root=1, axis=0, bucket_bytes=99)"
    )


def test_report_groups_ranks_that_called_alike():
    text = mismatch_text({0: "barrier() at a.py:1", 1: "x()", 2: "barrier() at a.py:1"}, 2)
    assert text == (
        "the ranks called different collectives (seen on rank 2/3):\n"
        "  rank 0, 2: barrier() at a.py:1\n"
        "  rank 1: x()\n"
        "all ranks must make the same calls in the same order with matching arguments"
    )


FLOATS = ("allreduce", "sum", np.dtype("float32"))
FIRST = describe(Signature(*FLOATS, (2, 3)), "in run")


@pytest.mark.parametrize(
    ("other", "is_of_shapes"),
    [
        (describe(Signature(*FLOATS, (3, 2)), "in run"), True),
        (describe(Signature(*FLOATS, ()), "in run") + " at a.py:1 (f)", True),
        (describe(Signature("allreduce", "sum", np.dtype("int32"), (2, 3)), "in run"), False),
        (describe(Signature("allreduce", "max", np.dtype("float32"), (3, 2))), False),
        (describe(Signature(*FLOATS, (2, 3)), "elsewhere"), False),
        ("barrier()", False),
    ],
)
def test_report_of_unequal_shapes_has_the_words_of_tensorflow(other, is_of_shapes):
    text = mismatch_text({0: FIRST, 1: other}, 0)
    assert text.startswith("Shape mismatch: the ranks called") == is_of_shapes, text
    lists = [
        describe(Signature("allreduce_many", "sum", (FLOATS[2],) * 2, shapes, bucket_bytes=9))
        for shapes in (((2,), (1,)), ((2,), (1, 1)))
    ]
    text = mismatch_text(dict(enumerate([*lists, lists[0]])), 0)
    assert text.startswith("Shape mismatch: the ranks called"), text


def caller_in(file):
    names = {"caller": fingerprint.caller}
    exec(compile("def f():\n    return caller()\n", file, "exec"), names)
    return names["f"]()


def test_caller_is_the_innermost_line_outside_the_package():
    package = fingerprint._PACKAGE.rstrip("/")
    assert caller_in("/home/user/train.py") == "/home/user/train.py:2 (f)"
    assert "test_gate.py" in caller_in(f"{package}/collectives/work.py")
    libraries = "/opt/venv/lib/python3.11/site-packages"
    assert caller_in(f"{libraries}/users/model.py") == f"{libraries}/users/model.py:2 (f)"
    for framework in ("tensorflow/python/ops.py", "keras/src/backend.py"):
        assert "test_gate.py" in caller_in(f"{libraries}/{framework}")
    beside = f"{package}_app/train.py"  # a user's folder whose name begins like the package's
    assert caller_in(beside) == f"{beside}:2 (f)"


def test_caller_is_outside_the_package_where_that_is_installed(monkeypatch):
    installed = "/opt/venv/lib/python3.11/site-packages/mpistrat/"
    monkeypatch.setattr(fingerprint, "_PACKAGE", installed)
    assert "test_gate.py" in caller_in(f"{installed}collectives/work.py")


def test_caller_is_not_what_tensorflow_generates_for_an_operation():
    names = {"caller": fingerprint.caller, "_op_def_library": None}
    exec(compile("def f():\n    return caller()\n", "<string>", "exec"), names)
    assert "test_gate.py" in names["f"]()
