"""Waiting: deadlines that name who is missing, order, and waits that are given up."""

import threading
import time
from types import SimpleNamespace

import pytest

from mpistrat.collectives import Communicator
from mpistrat.errors import (
    ClosedError,
    CommunicationError,
    CommunicationTimeoutError,
    PeerLostError,
)
from mpistrat.testing.sets import takes_long
from mpistrat.testing.threads import run_ranks


class Countdown:
    """A request that is done after some tests, or then raises."""

    def __init__(self, tests, error=None):
        self.tests, self.error = tests, error

    def Test(self):  # noqa: N802
        self.tests -= 1
        if self.tests < 0 and self.error is not None:
            raise self.error
        return self.tests < 0


def steps(request, result, log=None):
    yield request
    if log is not None:
        log.append(result)
    if isinstance(result, Exception):
        raise result
    return result


@pytest.fixture
def engine():
    return Communicator()._engine


# -------------------------------------------------------------------------------- deadlines


@takes_long()
def test_deadline_names_the_ranks_that_did_not_come():
    def rank(handle):
        comm = Communicator(handle)
        if comm.rank == 2:
            return
        start = time.monotonic()
        with pytest.raises(CommunicationTimeoutError) as caught:
            comm.barrier(timeout=0.3)
        assert 0.2 < time.monotonic() - start < 3
        assert caught.value.missing == (2,)
        assert "ranks that did not come: 2; look what these ranks do" in str(caught.value)
        assert f"on rank {comm.rank}/3 (threads) waited" in str(caught.value)
        with pytest.raises(CommunicationError, match=r"is broken .* CommunicationTimeoutError"):
            comm.barrier()
        comm.close()

    run_ranks(3, rank)


@takes_long()
def test_deadline_comes_from_the_environment(monkeypatch):
    is_over = threading.Event()

    def rank(handle):
        comm = Communicator(handle)
        if comm.rank == 0:
            monkeypatch.setenv("MPISTRAT_TIMEOUT", "0.2")
            with pytest.raises(CommunicationTimeoutError, match="MPISTRAT_TIMEOUT or timeout="):
                comm.barrier()
            is_over.set()
        else:
            is_over.wait(10)
            comm.health.break_off(RuntimeError("the test is over"))
        comm.close()

    run_ranks(2, rank)


def test_call_argument_goes_before_the_environment(monkeypatch):
    def rank(handle):
        comm = Communicator(handle)
        comm.barrier()
        monkeypatch.setenv("MPISTRAT_TIMEOUT", "0.01")
        if comm.rank == 0:
            time.sleep(0.2)
        assert comm.allreduce(1, timeout=10) == 2
        comm.close(timeout=10)

    run_ranks(2, rank)


def test_late_rank_is_waited_for():
    def rank(handle):
        comm = Communicator(handle)
        time.sleep(0.1 * comm.rank)
        assert comm.allreduce(1) == 3
        comm.close()

    run_ranks(3, rank)


@takes_long()
def test_rank_that_comes_after_the_others_gave_up_is_told():
    def rank(handle):
        comm = Communicator(handle)
        if comm.rank == 0:
            with pytest.raises(CommunicationTimeoutError):
                comm.barrier(timeout=0.1)
        else:
            time.sleep(1.5)  # rank 0 waits a second for an answer
            comm.barrier()  # its line is there: this call itself is complete
            with pytest.raises(PeerLostError, match="rank 0 gave up with CommunicationTimeout"):
                comm.barrier()
        comm.close()

    run_ranks(2, rank)


# ------------------------------------------------------------------------------------ order


def test_works_finish_in_the_order_of_their_start(engine):
    log = []
    works = [engine.start(steps(Countdown(n), n, log)) for n in (5, 0, 3)]
    assert not any(work.done for work in works)
    assert works[2].wait() == 3
    assert log == [5, 0, 3]
    assert [work.wait() for work in works] == [5, 0, 3]


def test_test_advances_and_never_waits(engine):
    work = engine.start(steps(Countdown(3), "value"))
    assert [work.test() for _ in range(3)] == [False, False, True]
    assert work.done
    assert work.test()
    assert work.wait() == "value"


def test_error_belongs_to_its_own_work_and_is_raised_by_every_wait(engine):
    first = engine.start(steps(Countdown(2), ZeroDivisionError("x")))
    second = engine.start(steps(Countdown(2), 2))
    assert second.wait() == 2
    for _ in range(2):
        with pytest.raises(ZeroDivisionError, match="x"):
            first.wait()


def test_work_of_several_requests(engine):
    def several():
        total = 0
        for n in range(4):
            yield Countdown(n)
            total += n
        return total

    assert engine.start(several()).wait() == 6


def test_wait_beyond_the_spins_ends(engine):
    assert engine.start(steps(Countdown(5000), "late")).wait(timeout=20) == "late"


# --------------------------------------------------------------------------------- given up


def test_interrupted_wait_breaks_the_communicator_and_tells_the_peers():
    def rank(handle):
        comm = Communicator(handle)
        if comm.rank == 1:
            work = comm._engine.start(steps(Countdown(3, KeyboardInterrupt()), None))
            behind = comm._engine.start(steps(Countdown(0), None))
            with pytest.raises(KeyboardInterrupt):
                work.wait()
            for lost in (work, behind):
                with pytest.raises(RuntimeError, match="interrupted: KeyboardInterrupt"):
                    lost.wait()
            with pytest.raises(CommunicationError, match=r"broken .* since: KeyboardInterrupt"):
                comm.barrier()
        else:
            with pytest.raises(PeerLostError, match="rank 1 gave up with KeyboardInterrupt"):
                comm.barrier()
        comm.close()

    run_ranks(2, rank)


def fast_call(is_busy=True):
    return SimpleNamespace(
        is_ready=True, is_busy=is_busy, is_under_way=is_busy, fast_calls=1, drop=lambda: None
    )


def test_fast_call_that_never_ends_is_not_waited_for_without_end(engine, monkeypatch):
    from mpistrat.collectives.progress import work_queue as module

    monkeypatch.setattr(module, "_NAPS", 10)
    engine._fast = fast_call()
    with pytest.raises(CommunicationError, match="has neither ended nor taken its place"):
        engine.start(steps(Countdown(0), None))
    assert "has neither ended" in engine.health.broken
    assert not engine._fast.is_ready


def test_fast_call_that_broke_is_not_waited_for(engine):
    engine._fast = fast_call()
    threading.Timer(0.05, engine.health.break_off, [KeyboardInterrupt()]).start()
    with pytest.raises(CommunicationError, match="since: KeyboardInterrupt"):
        engine.start(steps(Countdown(0), None))


def test_fast_call_that_ends_lets_the_next_one_begin(engine):
    engine._fast = fast_call()
    threading.Timer(0.05, setattr, [engine._fast, "is_busy", False]).start()
    assert engine.start(steps(Countdown(0), 3)).wait() == 3
    assert engine._fast.is_ready


def test_given_up_transfers_are_kept_alive(engine):
    from mpistrat.collectives.progress import work

    held = len(work._abandoned)
    with pytest.raises(CommunicationTimeoutError):
        engine.start(steps(Countdown(10**9), None)).wait(timeout=0.05)
    assert len(work._abandoned) == held + 1


def test_an_error_that_nobody_waits_for_is_shown(capfd):
    import gc

    def rank(comm):
        communicator = Communicator(comm)
        communicator.iallreduce([1.0] * (1 + comm.rank))
        communicator.barrier()
        gc.collect()

    run_ranks(2, rank)
    shown = capfd.readouterr().err
    assert shown.count("nobody waited for") == 2
    assert "shape=(2,)" in shown


def test_no_notice_is_sent_once_the_last_call_has_begun():
    has_failed = threading.Event()

    def rank(handle):
        comm = Communicator(handle)
        if comm.rank == 1:
            assert has_failed.wait(20)
            comm.close()
            return
        work = comm.iclose()
        comm.fail(ValueError("too late"))
        has_failed.set()
        work.wait()
        assert comm.health.peers.announced == 0

    run_ranks(2, rank)


def test_no_call_begins_behind_the_last_one():
    def rank(handle):
        comm = Communicator(handle)
        if comm.rank == 1:
            time.sleep(0.2)  # the others' last call is not over yet
        work = comm.iclose()
        for call in (comm.barrier, lambda: comm.allreduce(1.0), lambda: comm.ibarrier().wait()):
            with pytest.raises(ClosedError):
                call()
        work.wait()
        comm.close()

    run_ranks(2, rank)
