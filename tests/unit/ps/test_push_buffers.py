"""Shared memory in which members hand rows to a ps; both ends in one process here."""

import errno
import gc
import os

import numpy as np
import pytest

from mpistrat.collectives.backends.shared_memory.segment import Segment
from mpistrat.errors import CommunicationTimeoutError, UsageError
from mpistrat.ps.messages import MapBuffer, UnmapBuffer
from mpistrat.ps.transport import push_buffers
from mpistrat.ps.transport.push_buffers import MappedBuffers, PushBuffers
from mpistrat.system.kernels import why_no_kernels

pytestmark = pytest.mark.skipif(why_no_kernels() is not None, reason=str(why_no_kernels()))

FLOAT = np.dtype(np.float64)


class Ps:
    """Reads what was handed over when it is told to, or when a member waits for it."""

    def __init__(self):
        self.mapped_buffers, self.unread, self.settled = MappedBuffers(), [], 0
        self.errors = []  # of what was sent before, told once it has done what it was asked
        self.buffers = PushBuffers("worker 0", self.ask, self.settle)

    def ask(self, question):
        if isinstance(question, UnmapBuffer):
            result = self.mapped_buffers.unmap(question.name)
        else:
            assert isinstance(question, MapBuffer)
            result = self.mapped_buffers.map(question)
        if self.errors:
            raise self.errors.pop()
        return result

    def settle(self):
        self.settled += 1
        for buffered in self.unread:
            with self.mapped_buffers.reading(buffered):
                pass
        self.unread.clear()

    def hand_over(self, count):
        outgoing = self.buffers.outgoing_rows(count, (8,), FLOAT)
        assert outgoing.rows.shape == (count,)
        assert outgoing.values.shape == (count, 8)
        outgoing.rows[:], outgoing.values[:] = 3, count
        if outgoing.buffered is not None:
            self.unread.append(outgoing.buffered)
        return outgoing


def test_what_is_written_is_read_in_place():
    ps = Ps()
    buffered = ps.hand_over(4321).buffered
    with ps.mapped_buffers.reading(buffered) as (rows, values):
        assert rows.dtype == np.int64
        assert (rows == 3).all()
        assert values.dtype == FLOAT
        assert values.shape == (4321, 8)
        assert (values == 4321).all()
    assert ps.settled == 0


def test_what_is_small_goes_in_messages():
    ps = Ps()
    assert ps.hand_over(0).buffered is None
    assert ps.hand_over(500).buffered is None
    assert ps.hand_over(1000).buffered is not None


def test_a_buffer_is_used_again_once_it_was_read():
    ps = Ps()
    names = set()
    for _ in range(10):
        names.add(ps.hand_over(2000).buffered.buffer)
        ps.settle()
    assert len(names) == 1


def test_a_push_waits_while_all_buffers_are_full():
    ps = Ps()
    names = [ps.hand_over(2000).buffered.buffer for _ in range(5)]
    assert len(set(names)) == 2
    assert ps.settled == 2


def test_buffers_that_are_too_small_give_way_to_larger_ones():
    ps = Ps()
    small = {ps.hand_over(2000).buffered.buffer for _ in range(2)}
    large = {ps.hand_over(50_000).buffered.buffer for _ in range(2)}
    assert len(large) == 2
    assert not small & large
    gone = push_buffers.BufferedRows(small.pop(), 1, (8,), FLOAT)
    with pytest.raises(KeyError), ps.mapped_buffers.reading(gone):
        pass


def test_all_full_of_what_was_not_sent_is_no_end():
    """Whoever holds them will send them after this one."""
    ps = Ps()
    held = [ps.buffers.outgoing_rows(2000, (8,), FLOAT) for _ in range(3)]
    assert [one.buffered is None for one in held] == [False, False, True]
    held[0].release()
    assert ps.buffers.outgoing_rows(2000, (8,), FLOAT).buffered.buffer == held[0].buffered.buffer


def test_a_ps_that_cannot_map_them_gets_messages(monkeypatch):
    ps = Ps()
    monkeypatch.setattr(push_buffers, "namespace", iter(["one", "another"]).__next__)
    assert ps.hand_over(2000).buffered is None
    assert ps.hand_over(2000).buffered is None  # and is not asked again


def test_without_memory_there_are_messages(monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    ps = Ps()
    gc.collect()
    before = set(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(Segment, "allocate", refuse)
    assert ps.hand_over(2000).buffered is None
    gc.collect()
    assert set(os.listdir("/proc/self/fd")) == before


def test_nothing_is_left_of_a_member_that_has_ended():
    gc.collect()
    before = set(os.listdir("/proc/self/fd"))
    ps = Ps()
    ps.hand_over(2000)
    ps.mapped_buffers.forget("worker 1")
    ps.settle()
    ps.mapped_buffers.forget("worker 0")
    del ps
    gc.collect()
    assert set(os.listdir("/proc/self/fd")) == before


def test_an_error_of_an_earlier_change_leaves_no_buffer_behind():
    gc.collect()
    before = set(os.listdir("/proc/self/fd"))
    ps = Ps()
    ps.errors = [UsageError("of an earlier change")]
    with pytest.raises(UsageError, match="of an earlier change"):
        ps.hand_over(2000)
    gc.collect()
    assert set(os.listdir("/proc/self/fd")) == before
    assert ps.hand_over(2000).buffered is not None


def test_a_ps_that_does_not_answer_is_told():
    ps = Ps()
    ps.errors = [CommunicationTimeoutError("waited for ps 0")]
    with pytest.raises(CommunicationTimeoutError, match="waited for ps 0"):
        ps.hand_over(2000)
    assert ps.hand_over(2000).buffered is not None  # it is asked again


@pytest.mark.parametrize("end", ["the member", "the ps"])
def test_buffers_leave_descriptors_for_others(end, monkeypatch):
    before = set(os.listdir("/proc/self/fd"))
    asked = []

    def limited(fd):
        asked.append(fd)
        if len(asked) == (1 if end == "the member" else 2):
            raise OSError(errno.EMFILE, "too many are in use")

    monkeypatch.setattr(push_buffers, "check_descriptor", limited)
    ps = Ps()
    assert ps.hand_over(4321).buffered is None
    assert len(asked) == (1 if end == "the member" else 2)
    assert set(os.listdir("/proc/self/fd")) == before


def test_closed_ends_unmap_their_buffers():
    before = set(os.listdir("/proc/self/fd"))
    ps = Ps()
    for count in (4321, 5000):
        ps.hand_over(count)
    ps.settle()
    gc.disable()
    try:
        ps.buffers.close()
        ps.mapped_buffers.close()
        assert set(os.listdir("/proc/self/fd")) == before
    finally:
        gc.enable()
    assert ps.hand_over(4321).buffered is None
