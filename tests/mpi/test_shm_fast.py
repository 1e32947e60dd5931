"""The short way of ``communicator.allreduce``: the same as the long one, in every respect.

``comm.allreduce`` takes it for plain arrays; `slow` never does. The two meet, too: which way a
rank takes is its own affair.
"""

import gc
import os
import signal
import sys
import threading
import time

import numpy as np
import pytest

from mpistrat.collectives import Communicator, shutdown
from mpistrat.errors import (
    ArgumentTypeError,
    ClosedError,
    CommunicationError,
    CommunicationTimeoutError,
    MismatchError,
    PeerLostError,
    UsageError,
)
from mpistrat.testing.backends.samples import DTYPES, get_dtype, ops_for, sample

SHAPES = [(), (0,), (1,), (3, 0), (57,), (4, 5, 6), (3001,), (1, 2, 1, 2, 1, 2), (1,) * 7]


def open_communicator(backend="shm"):
    from mpi4py import MPI

    return Communicator(MPI.COMM_WORLD, backend)


def slow(comm, *arguments, **options):
    return Communicator.allreduce(comm, *arguments, **options)


def fast_calls(comm):
    return comm.backend.fast.fast_calls


def assert_equal(got, want, what=""):
    """Equal type, dtype, shape and bits, and memory of the caller's own."""
    assert type(got) is type(want) is np.ndarray, what
    assert (got.dtype, got.shape) == (want.dtype, want.shape), what
    assert got.tobytes() == want.tobytes(), f"{what}: {got} is not {want}"
    assert got.flags.c_contiguous, what
    assert got.flags.writeable, what


def check(comm, *arguments, is_fast, **options):
    """Compare the two ways, and look which one was taken."""
    before = fast_calls(comm)
    got = comm.allreduce(*arguments, **options)
    what = f"{arguments} {options}"
    assert fast_calls(comm) - before == is_fast, what
    assert_equal(got, slow(comm, *arguments, **options), what)
    return got


# --------------------------------------------------------------------------- ways to call it


@pytest.mark.mpi(ranks=2)
def test_forms_of_the_call():
    with open_communicator() as comm:
        x = np.arange(10.0) + comm.rank
        for arguments, options in [
            ((x,), {}),
            ((x, "sum"), {}),
            ((x,), {"op": "max"}),
            ((x,), {"out": None, "timeout": None}),
            ((x, "mean"), {"timeout": None}),
        ]:
            check(comm, *arguments, is_fast=True, **options)
        for arguments, options in [
            ((), {"array": x}),
            ((), {"op": "max", "array": x}),
            ((x,), {"timeout": 10}),
            ((x, "".join(["s", "um"])), {}),  # a text that Python has not interned
            ((x, np.str_("sum")), {}),
        ]:
            check(comm, *arguments, is_fast=False, **options)
        call = comm.allreduce
        assert_equal(call(x), slow(comm, x))


@pytest.mark.mpi(ranks=2)
def test_calls_that_python_would_refuse():
    with open_communicator() as comm:
        x = np.ones(3)
        for arguments, options in [
            ((), {}),
            ((x, "sum", None), {}),
            ((x, "sum"), {"op": "sum"}),
            ((x,), {"array": x}),
            ((x,), {"into": x}),
        ]:
            with pytest.raises(TypeError, match="argument"):
                comm.allreduce(*arguments, **options)
        check(comm, x, is_fast=True)


@pytest.mark.mpi(ranks=2)
def test_out():
    with open_communicator() as comm:
        for count in (5, 3000, 100_000):
            x = np.arange(count, dtype=np.float64) * (1 + comm.rank)
            want = slow(comm, x)
            out, before = np.empty_like(x), fast_calls(comm)
            assert comm.allreduce(x, out=out) is out
            assert_equal(out, want)
            assert comm.allreduce(out, "max", out=out) is out  # in place, of equal arrays
            assert_equal(out, want)
            assert fast_calls(comm) == before + 2
            for out in (
                np.empty(2 * count)[::2],
                np.zeros(count + 8, np.uint8).repeat(8)[1 : 1 + 8 * count].view(np.float64),
                np.empty(count)[::-1],
                np.matrix(np.empty(count)).A1.view(np.memmap),
            ):
                assert comm.allreduce(x, out=out) is out
                np.testing.assert_array_equal(out, want)
            assert fast_calls(comm) == before + 2
            square = np.asfortranarray(np.arange(12.0).reshape(3, 4))
            assert comm.allreduce(square, out=square) is square
            np.testing.assert_array_equal(square, comm.size * np.arange(12.0).reshape(3, 4))


@pytest.mark.mpi(ranks=2)
@pytest.mark.parametrize("count", [4, 3000, 100_000])
@pytest.mark.parametrize("shift", [-1, 1])
def test_out_that_overlaps_the_array_in_part(count, shift):
    with open_communicator() as comm:
        memory = np.arange(count + 2.0)
        x, out = memory[1 : count + 1], memory[1 + shift : count + 1 + shift]
        before = fast_calls(comm)
        assert comm.allreduce(x, out=out) is out
        assert fast_calls(comm) == before
        np.testing.assert_array_equal(out, 2.0 * np.arange(1, count + 1))


def read_only(array):
    array.flags.writeable = False
    return array


BAD_OUTS = {
    "shape": lambda: np.empty(4),
    "dimensions": lambda: np.empty((3, 1)),
    "dtype": lambda: np.empty(3, np.float32),
    "byte order": lambda: np.empty(3, ">f8"),
    "read-only": lambda: read_only(np.empty(3)),
    "a list": lambda: [0.0, 0.0, 0.0],
    "0-d": lambda: np.float64(0),
}


@pytest.mark.mpi(ranks=2)
@pytest.mark.parametrize("kind", BAD_OUTS)
def test_out_that_does_not_fit(kind):
    with open_communicator() as comm:
        with pytest.raises(UsageError, match="out"):
            comm.allreduce(np.ones(3), out=BAD_OUTS[kind]())
        if comm.rank == 0:  # the other one calls the short way
            with pytest.raises(UsageError, match="out"):
                comm.allreduce(np.ones(3), out=BAD_OUTS[kind]())
        else:
            with pytest.raises(MismatchError, match="a call that it refused"):
                comm.allreduce(np.ones(3))
        check(comm, np.ones(3), is_fast=True)


# ------------------------------------------------------------------------- what it is called with


@pytest.mark.mpi(ranks=2)
@pytest.mark.parametrize("name", DTYPES)
def test_every_dtype_op_and_shape(name):
    with open_communicator() as comm:
        for op in ops_for(name):
            is_fast = not (op == "mean" and get_dtype(name).kind in "biuc")
            for shape in SHAPES:
                x = sample(name, shape, comm.rank)
                check(comm, x, op, is_fast=is_fast and len(shape) < 7)


@pytest.mark.mpi(ranks=2)
@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
def test_numbers_at_the_edges(name):
    with open_communicator() as comm:
        dtype = get_dtype(name)
        edges = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-8, 6e-8, 65504.0, 3e38, 1e-45]
        with np.errstate(all="ignore"):
            rows = np.array(np.meshgrid(edges, edges)).reshape(2, -1).astype(dtype)
            for op in ("sum", "prod", "min", "max", "mean"):
                check(comm, rows[comm.rank].copy(), op, is_fast=True)


@pytest.mark.mpi(ranks=2)
def test_what_is_no_plain_array():
    with open_communicator() as comm:
        r = comm.rank
        square = np.arange(12.0).reshape(3, 4) + r
        for value in (
            *(r, 1.5, True, 2j, np.float32(r), np.int8(3), [1, 2, r], [[1.0], [r]], (1, 2), []),
            np.asfortranarray(square),
            square.T,
            square[:, ::2],
            square[::-1],
            np.broadcast_to(square[0], (3, 4)),
            np.zeros(33, np.uint8)[1:].view(np.float64),  # at an odd address
            np.matrix(square),
            square.view(np.memmap),
            np.ma.asarray(square).data.view(np.recarray),
            memoryview(b"abc"),
        ):
            check(comm, value, is_fast=False)
        for value in (np.array(1.5), read_only(np.ones(3)), np.ones(3, "q"), square[1:]):
            check(comm, value, is_fast=True)


@pytest.mark.mpi(ranks=2)
def test_what_cannot_be_sent():
    with open_communicator() as comm:
        for value in (
            np.ones(3, ">f4"),
            np.ma.masked_array([1.0, 2.0], [True, False]),
            np.ones(3, np.longdouble),
            np.array(["a"]),
            np.array([None]),
            np.zeros(2, "i4,f4"),
            np.zeros(2, "M8[s]"),
            np.zeros(2, "m8[s]"),
            "text",
            None,
        ):
            before = fast_calls(comm)
            with pytest.raises(UsageError) as error:
                comm.allreduce(value)
            assert isinstance(error.value, ArgumentTypeError) or ">f4" in str(error.value)
            assert fast_calls(comm) == before
        for value, op in [
            (np.ones(2), "and"),
            (np.ones(2, complex), "max"),
            (np.ones(2), "median"),
            (np.ones(2), None),
            (np.ones(2), 3),
            (np.ones(2), np.add),
        ]:
            with pytest.raises(UsageError, match=r"median|op=|reduction"):
                comm.allreduce(value, op)
        check(comm, np.ones(3), is_fast=True)


@pytest.mark.mpi(ranks=2)
def test_bools_whose_bytes_are_neither_0_nor_1():
    with open_communicator() as comm:
        odd = np.array([0, 1, 2, 255, 128, 0], np.uint8)
        mine = (odd if comm.rank == 0 else odd[::-1].copy()).repeat(100).view(np.bool_)
        plain = [part.repeat(100) != 0 for part in (odd, odd[::-1])]
        for op, want in {
            "sum": plain[0] | plain[1],
            "max": plain[0] | plain[1],
            "or": plain[0] | plain[1],
            "prod": plain[0] & plain[1],
            "min": plain[0] & plain[1],
            "and": plain[0] & plain[1],
            "xor": plain[0] ^ plain[1],
        }.items():
            for part in (slice(0, 6 * 100), slice(95, 105)):
                assert_equal(check(comm, mine[part], op, is_fast=True), want[part], op)
        np.testing.assert_array_equal(
            comm.allreduce(mine, "mean"), (0.0 + plain[0] + plain[1]) / 2
        )


@pytest.mark.mpi(ranks=2)
def test_results_are_new_and_nothing_is_kept():
    with open_communicator() as comm:
        x, out = np.ones(1000), np.empty(1000)
        first, second = comm.allreduce(x), comm.allreduce(x)
        assert first.flags.owndata
        assert not np.may_share_memory(first, second)
        before = sys.getrefcount(x), sys.getrefcount(out), sys.getrefcount(None)
        for _ in range(200):
            comm.allreduce(x, out=out)
            comm.allreduce(x, "max")
        after = sys.getrefcount(x), sys.getrefcount(out), sys.getrefcount(None)
        assert after[:2] == before[:2]
        assert abs(after[2] - before[2]) < 100


# ------------------------------------------------------------------ the two ways side by side


@pytest.mark.mpi(ranks=[2, 3])
@pytest.mark.parametrize("count", [3, 600, 9000, 150_000])
def test_ranks_that_go_different_ways_meet(count):
    with open_communicator() as comm:
        ways = {
            "plain": lambda x: comm.allreduce(x, "sum"),
            "in place": lambda x: comm.allreduce(x, out=x),
            "strided": lambda x: comm.allreduce(x.repeat(2)[::2]),
            "backwards": lambda x: comm.allreduce(x[::-1].copy()[::-1]),
            "a list": lambda x: comm.allreduce(x.tolist()),
            "a deadline": lambda x: comm.allreduce(x, timeout=20),
            "a twin": lambda x: comm.iallreduce(x).wait(),
            "an out of its own": lambda x: comm.allreduce(x, out=np.empty(2 * count)[::2]),
            "long": lambda x: slow(comm, x),
            "registered": lambda x: comm.allreduce(registered, out=registered),
        }
        registered = comm.empty(count)
        names = list(ways)
        want = np.arange(count) * 1.5 * sum(range(1, comm.size + 1))
        for i in range(2 * len(names)):
            name = names[(i + comm.rank * (1 + i // len(names))) % len(names)]
            x = np.arange(count) * 1.5 * (comm.rank + 1)
            registered[:] = x
            np.testing.assert_array_equal(ways[name](x), want, name)


@pytest.mark.mpi(ranks=[2, 3])
def test_calls_that_differ_are_a_mismatch_and_then_all_is_well():
    with open_communicator() as comm:
        is_last = comm.rank == comm.size - 1
        x = np.ones(6)
        for other in (
            lambda: comm.allreduce(np.ones(7)),
            lambda: comm.allreduce(np.ones((2, 3))),
            lambda: comm.allreduce(np.ones(6, np.float32)),
            lambda: comm.allreduce(x, "max"),
            lambda: comm.allreduce(np.ones(200_000)),
            lambda: comm.reduce(x),
            comm.barrier,
        ):
            for is_one in (is_last, not is_last):
                before = x.copy()
                with pytest.raises(MismatchError, match="different collectives"):
                    other() if is_one else comm.allreduce(x, out=x)
                np.testing.assert_array_equal(x, before)
                check(comm, np.ones(3), is_fast=True)
        comm.label = "a loss" if is_last else "a gradient"
        with pytest.raises(MismatchError, match="a gradient"):
            comm.allreduce(x)
        comm.label = "a loss"
        check(comm, x, is_fast=True)


@pytest.mark.mpi(ranks=2)
def test_it_keeps_its_place_behind_calls_that_were_started():
    with open_communicator() as comm:
        long, short = np.full(400_000, 1.0), np.full(3, 2.0)
        for i in range(20):
            if comm.rank == i % 2:
                time.sleep(2e-3)  # so that the other one's work is still under way
            work = comm.iallreduce(long)
            assert_equal(comm.allreduce(short), np.full(3, 4.0))
            assert work.done
            works = [comm.iallreduce(short) for _ in range(3)]
            assert_equal(comm.allreduce(short, out=short.copy()), np.full(3, 4.0))
            assert_equal(works[2].wait(), np.full(3, 4.0))
            assert_equal(work.wait(), np.full(400_000, 2.0))
        check(comm, short, is_fast=True)


@pytest.mark.mpi(ranks=2, timeout_s=40)
def test_two_threads_with_a_communicator_each():
    comms = [open_communicator() for _ in range(2)]
    errors = []

    def work(number):
        try:
            random = np.random.default_rng()
            for i in range(150):
                count = (3, 5000, 60_000)[i % 3]
                if random.random() < 0.1:
                    time.sleep(random.uniform(0, 2e-3))
                total = comms[number].allreduce(np.full(count, float(i + number)))
                assert (total == 2.0 * (i + number)).all()
        except BaseException as error:  # noqa: BLE001 - raised by the test
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    for comm in comms:
        check(comm, np.ones(3), is_fast=True)
        comm.close()


# ------------------------------------------------------------------------------------ its ends


def drop(comm):
    """Close a broken communicator, and let the job end well all the same."""
    comm.close()
    shutdown.forget(comm)


@pytest.mark.mpi(ranks=2)
@pytest.mark.parametrize("count", [3, 200_000])
def test_interrupt_while_it_waits(count):
    comm = open_communicator()
    x = np.ones(count)
    comm.allreduce(x)
    if comm.rank == 0:
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        start = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            comm.allreduce(x)
        assert time.monotonic() - start < 2
        with pytest.raises(CommunicationError, match=r"broken.*KeyboardInterrupt"):
            comm.allreduce(x)
    else:
        time.sleep(0.6)
        with pytest.raises(PeerLostError, match="rank 0 gave up with KeyboardInterrupt"):
            comm.barrier()
    drop(comm)


@pytest.mark.mpi(ranks=2)
def test_a_signal_that_is_handled_while_it_waits():
    with open_communicator() as comm:
        seen = []
        before = signal.signal(signal.SIGUSR2, lambda *_: seen.append(time.monotonic()))
        start = time.monotonic()
        if comm.rank == 0:
            threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR2)).start()
        else:
            time.sleep(0.5)
        assert_equal(comm.allreduce(np.ones(2)), np.full(2, 2.0))
        signal.signal(signal.SIGUSR2, before)
        if comm.rank == 0:
            assert seen[0] - start < 0.4  # at once, and not when the other rank came
        check(comm, np.ones(2), is_fast=True)


@pytest.mark.mpi(ranks=2)
def test_deadline_of_a_call_that_names_none():
    comm = open_communicator()
    os.environ["MPISTRAT_TIMEOUT"] = "0.5"
    try:
        if comm.rank == 0:
            with pytest.raises(CommunicationTimeoutError, match="ranks that did not come: 1"):
                comm.allreduce(np.ones(2))
        else:
            time.sleep(2)  # the other one asks for a second who else waits
            with pytest.raises(CommunicationError, match=r"rank 0 gave up|waited 0\.\d s"):
                comm.barrier()
    finally:
        del os.environ["MPISTRAT_TIMEOUT"]
    with pytest.raises(CommunicationError, match="broken"):
        comm.allreduce(np.ones(2))
    drop(comm)


@pytest.mark.mpi(ranks=2)
def test_a_peer_that_fails_while_it_waits():
    comm = open_communicator()
    if comm.rank == 0:
        with pytest.raises(PeerLostError, match="rank 1 failed with ValueError: of its own"):
            comm.allreduce(np.ones(2))
    else:
        time.sleep(0.1)
        comm.end(ValueError("of its own"))
    drop(comm)


@pytest.mark.mpi(ranks=2)
def test_after_a_failure_of_all_ranks():
    with open_communicator() as comm:
        comm.allreduce(np.ones(2))
        comm.fail(ValueError("alike on all ranks"))
        for _ in range(3):
            check(comm, np.ones(2), is_fast=True)


@pytest.mark.mpi(ranks=2)
def test_after_the_close():
    comm = open_communicator()
    call = comm.allreduce
    call(np.ones(2))
    comm.close()
    with pytest.raises(ClosedError):
        call(np.ones(2))
    del comm
    gc.collect()
    with pytest.raises(ClosedError):
        call(np.ones(2))
