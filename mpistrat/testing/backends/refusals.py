"""Conformance of backends: errors for bad arguments and for calls that differ by rank."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mpistrat.collectives.communicator import Communicator
from mpistrat.errors import ArgumentTypeError, ClosedError, MismatchError, UsageError
from mpistrat.testing.backends.cases import BackendCases

__all__ = ["RefusalCases"]

Call = Callable[[Communicator], Any]

_X = np.zeros((2, 3))
_READ_ONLY = np.zeros((2, 3))
_READ_ONLY.flags.writeable = False

_BAD: list[tuple[str, Call, type[Exception]]] = [
    ("root=7 is no rank; expected 0 to", lambda c: c.bcast(_X, 7), UsageError),
    ("root=-1 is no rank", lambda c: c.reduce(_X, root=-1), UsageError),
    ("root=True is a bool; expected int", lambda c: c.gather(_X, True), ArgumentTypeError),
    ("root='0' is a str", lambda c: c.bcast_object(1, "0"), ArgumentTypeError),  # type: ignore[arg-type]
    ("axis=2 is out of range .* -2 to 1", lambda c: c.allgather(_X, 2), UsageError),
    ("axis=-3 is out of range", lambda c: c.gather(_X, 0, -3), UsageError),
    ("axis=5 is out of range", lambda c: c.alltoall(_X, axis=5), UsageError),
    ("axis=1.0 is a float", lambda c: c.reduce_scatter(_X, axis=1.0), ArgumentTypeError),  # type: ignore[arg-type]
    ("a 0-d array has no axis", lambda c: c.allgather(1.0), UsageError),
    ("a 0-d array has no axis", lambda c: c.gather(1.0), UsageError),
    ("a 0-d array has no axis", lambda c: c.alltoall(1.0), UsageError),
    ("op='add' is not a reduction", lambda c: c.reduce(_X, "add"), UsageError),
    ("op=None is a NoneType", lambda c: c.allreduce(_X, None), ArgumentTypeError),  # type: ignore[arg-type]
    ("op='add' is not", lambda c: c.allreduce_many([_X], "add"), UsageError),
    ("out is a list", lambda c: c.allreduce(1.0, out=[0.0]), ArgumentTypeError),  # type: ignore[arg-type]
    ("out has shape .3, 2.", lambda c: c.allreduce(_X, out=np.zeros((3, 2))), UsageError),
    ("dtype float32", lambda c: c.allreduce(_X, out=np.zeros((2, 3), "f4")), UsageError),
    ("writeable=False", lambda c: c.bcast(_X, out=_READ_ONLY), UsageError),
    ("expected .* dtype float64", lambda c: c.allreduce(1, "mean", out=np.array(0)), UsageError),
    ("add up to the 2 rows", lambda c: c.alltoall(_X, [5] * c.size), UsageError),
    (
        "of at least 0",
        lambda c: c.alltoall(_X, [3, -1, *[0] * (c.size - 2)][: c.size]),
        UsageError,
    ),
    ("numbers of at least 0", lambda c: c.alltoall(_X, [1] * (c.size + 1)), UsageError),
    ("whole numbers", lambda c: c.alltoall(_X, ["2"] * c.size), ArgumentTypeError),  # type: ignore[list-item]
    ("whole numbers", lambda c: c.alltoall(_X, 2), ArgumentTypeError),  # type: ignore[arg-type]
    ("cannot be pickled", lambda c: c.allgather_object(threading.Lock()), ArgumentTypeError),
]
"""What the message says, a call that every rank makes, and what each gets."""

_UNLIKE: list[tuple[Call, Call, str, str]] = [
    (
        *(lambda c: c.allreduce(_X), lambda c: c.barrier()),
        *(r"allreduce\(op=sum, dtype=float64, shape=\(2, 3\)\)", r"barrier\(\)"),
    ),
    (
        *(lambda c: c.allreduce(_X), lambda c: c.allreduce(_X.astype("f4"))),
        *("dtype=float64", "dtype=float32"),
    ),
    (
        *(lambda c: c.allreduce(_X), lambda c: c.allreduce(_X.T)),
        *(r"shape=\(2, 3\)", r"shape=\(3, 2\)"),
    ),
    (lambda c: c.allreduce(_X), lambda c: c.allreduce(_X, "max"), "op=sum", "op=max"),
    (lambda c: c.allreduce(_X), lambda c: c.reduce(_X), "allreduce", " reduce"),
    (lambda c: c.bcast(_X, 0), lambda c: c.bcast(_X, 1), "root=0", "root=1"),
    (lambda c: c.reduce(_X, root=0), lambda c: c.reduce(_X, root=1), "root=0", "root=1"),
    (lambda c: c.bcast_object(1, 0), lambda c: c.bcast_object(1, 1), "root=0", "root=1"),
    (lambda c: c.allgather(_X, 0), lambda c: c.allgather(_X, 1), "axis=0", "axis=1"),
    (
        *(lambda c: c.gather(_X), lambda c: c.gather(_X[:, :2])),
        *(r"shape=\(3,\)", r"shape=\(2,\)"),
    ),
    (lambda c: c.gather(_X), lambda c: c.allgather(_X), " gather", "allgather"),
    (
        *(lambda c: c.allreduce_many([_X]), lambda c: c.allreduce_many([_X, _X])),
        *(r"1 array \[\w+ \(2, 3\)\]", r"2 arrays \[\w+ \(2, 3\); \w+ \(2, 3\)\]"),
    ),
    (
        *(lambda c: c.allreduce_many([_X], bucket_bytes=8), lambda c: c.allreduce_many([_X])),
        *("bucket_bytes=8", "bucket_bytes=33554432"),
    ),
    (
        lambda c: c.alltoall(np.zeros(12)),
        lambda c: c.allgather(np.zeros(12)),
        "alltoall",
        "gather",
    ),
    (
        *(lambda c: c.reduce_scatter(_X), lambda c: c.reduce_scatter(_X[:1])),
        *(r"\(2, 3\)", r"\(1, 3\)"),
    ),
]
"""What rank 0 calls, what the others call, and how each is described."""

_PROGRAM = compile(
    "def call(comm):\n    if comm.rank:\n        comm.barrier()\n    comm.allreduce(1.0)\n",
    "a_users_program.py",
    "exec",
)


def _assert_usable(comm: Communicator) -> None:
    assert comm.allreduce(1) == comm.size
    assert comm.allreduce(np.ones(500))[0] == comm.size


class RefusalCases(BackendCases):
    """Every rank gets an error, and the communicator works on."""

    def test_bad_arguments_on_all_ranks(self, size: int) -> None:
        """Each rank gets its own error."""

        def body(comm: Communicator) -> None:
            for text, call, kind in _BAD:
                with pytest.raises(kind, match=text):
                    call(comm)
            _assert_usable(comm)

        self.run(size, body)

    def test_bad_arguments_on_one_rank(self, size: int) -> None:
        """That rank gets its error, the others a mismatch that carries the reason."""

        def body(comm: Communicator) -> None:
            for text, call, kind in _BAD:
                for bad in range(comm.size):
                    if comm.rank == bad:
                        with pytest.raises(kind, match=text):
                            call(comm)
                    else:
                        with pytest.raises(MismatchError, match=f"it refused: .*{text}"):
                            comm.allreduce(_X)
            _assert_usable(comm)

        self.run(size, body)

    def test_uneven_blocks_are_refused(self, size: int) -> None:
        """Alltoall without splits needs a multiple of the size."""

        def body(comm: Communicator) -> None:
            if comm.size > 1:
                with pytest.raises(UsageError, match=f"{comm.size + 1} rows cannot be cut in"):
                    comm.alltoall(np.zeros(comm.size + 1))
            _assert_usable(comm)

        self.run(size, body)

    def test_scatter_needs_the_array_at_the_root_alone(self, size: int) -> None:
        """None at the root, an array elsewhere, no axis to cut."""

        def body(comm: Communicator) -> None:
            is_root = comm.rank == 0
            with pytest.raises(
                UsageError if is_root else MismatchError, match="gave None; expect"
            ):
                comm.scatter(None)
            with pytest.raises(UsageError if is_root else MismatchError, match="no axis"):
                comm.scatter(1.0 if is_root else None)
            with pytest.raises(UsageError if is_root else MismatchError, match="out of range"):
                comm.scatter(_X if is_root else None, axis=2)
            if comm.size > 1:
                with pytest.raises((UsageError, MismatchError), match="the root is 0"):
                    comm.scatter(_X)
                with pytest.raises((UsageError, MismatchError), match="is a list; expected int"):
                    comm.scatter(_X if is_root else None, axis=0 if is_root else [0])  # type: ignore[arg-type]
            _assert_usable(comm)

        self.run(size, body)

    def test_unlike_calls_are_named_on_every_rank(self, size: int) -> None:
        """The report lists every rank's call; the next calls work."""

        def body(comm: Communicator) -> None:
            if comm.size == 1:
                return
            for mine, others, here, there in _UNLIKE:
                with pytest.raises(MismatchError, match=here) as caught:
                    (mine if comm.rank == 0 else others)(comm)
                report = str(caught.value)
                assert f"seen on rank {comm.rank}/{comm.size}" in report
                assert sorted(caught.value.calls) == list(range(comm.size))
                with pytest.raises(AssertionError, match=there):
                    raise AssertionError(report)
                _assert_usable(comm)

        self.run(size, body)

    def test_mismatch_names_the_line_of_each_rank(self, size: int) -> None:
        """File and line of the program, not of this package."""
        names: dict[str, Any] = {}
        exec(_PROGRAM, names)

        def body(comm: Communicator) -> None:
            if comm.size == 1:
                return
            with pytest.raises(MismatchError) as caught:
                names["call"](comm)
            calls = caught.value.calls
            assert calls[0].endswith("at a_users_program.py:4 (call)"), calls
            assert calls[1].endswith("at a_users_program.py:3 (call)"), calls
            _assert_usable(comm)

        self.run(size, body)

    def test_closed_communicator_refuses_calls(self, size: int) -> None:
        """And can be closed again."""

        def body(comm: Communicator) -> None:
            comm.close()
            assert comm.is_closed
            for call in (comm.barrier, comm.ibarrier, lambda: comm.allgather(1.0)):
                with pytest.raises(ClosedError, match="was closed; make a new one"):
                    call()
            comm.close()

        self.run(size, body)
