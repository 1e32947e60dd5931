"""Shards where memory cannot be shared, or is not there; and whose processes have ended."""

import errno
import gc
import os
import pickle

import numpy as np
import pytest

from mpistrat.collectives.backends.shared_memory.segment import Segment
from mpistrat.errors import BackendUnavailableError, MpistratError, PeerLostError
from mpistrat.ps.storage import memory, shard_reader
from mpistrat.ps.storage.shard import Shard, ShardReader
from mpistrat.system.kernels import why_no_kernels
from mpistrat.system.liveness import tagged_process
from mpistrat.system.processes import process_tag

pytestmark = pytest.mark.skipif(why_no_kernels() is not None, reason=str(why_no_kernels()))

VALUE = np.arange(12.0).reshape(4, 3)


def refuse(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


def descriptors():
    return set(os.listdir("/proc/self/fd"))


def test_without_shared_memory_a_shard_is_private_and_says_so(monkeypatch, caplog):
    monkeypatch.setattr("mpistrat.system.log._once", set())
    monkeypatch.setattr(os, "memfd_create", refuse)
    with caplog.at_level("WARNING", logger="mpistrat"):
        one = Shard(VALUE)
    assert "no shared memory for 96 bytes" in caplog.text
    assert "have to ask this process" in caplog.text
    one.add(VALUE)
    np.testing.assert_array_equal(one.read(), 2 * VALUE)
    with pytest.raises(BackendUnavailableError, match=r"No space left.*ask its owner for copies"):
        Shard.attach(one.handle())


def test_nothing_is_left_of_a_shard_that_had_no_memory(monkeypatch):
    gc.collect()  # of other tests
    before = descriptors()
    monkeypatch.setattr(Segment, "allocate", refuse)
    Shard(VALUE)
    gc.collect()
    assert descriptors() == before


def test_without_memory_for_another_buffer_changes_are_made_in_place(monkeypatch):
    one = Shard(VALUE)
    monkeypatch.setattr(Segment, "allocate", refuse)
    one.assign(2 * VALUE)
    one.add(VALUE)
    with one.rewriting() as array:
        np.add(array, VALUE, out=array)
    np.testing.assert_array_equal(one.read(), 4 * VALUE)
    assert one.version == 3
    with one.view() as view:
        for change in (one.assign, one.add, lambda value: one.add_rows(range(4), value)):
            with pytest.raises(MpistratError, match=f"views are held by processes {os.getpid()}"):
                change(VALUE)
        np.testing.assert_array_equal(view, 4 * VALUE)
    one.add_rows(range(4), VALUE)
    np.testing.assert_array_equal(one.read(), 5 * VALUE)
    one.close()


def test_memory_of_views_is_given_back():
    one = Shard(np.zeros((1000, 64)))
    views = [one.view() for _ in range(4)]
    for count, view in enumerate(views):
        view.__enter__()
        one.add_rows([0], np.ones((1, 64)))
        assert len(one._store._allocated) == count + 2
    for view in views:
        view.__exit__(None, None, None)
    for _ in range(3):
        one.add(np.ones((1000, 64)))
    assert len(one._store._allocated) == 2
    np.testing.assert_array_equal(one.read()[:2, 0], [7, 3])
    one.close()


def test_a_handle_is_for_those_who_can_reach_its_owner(monkeypatch):
    one = Shard(VALUE)
    handle = pickle.loads(pickle.dumps(one.handle()))
    np.testing.assert_array_equal(Shard.attach(handle).read(), VALUE)
    with pytest.raises(BackendUnavailableError, match="made with shared=False"):
        Shard.attach(Shard(VALUE, shared=False).handle())
    with monkeypatch.context() as patch:
        patch.setattr(memory, "host_name", lambda: "elsewhere")
        elsewhere = Shard(VALUE)
        far = elsewhere.handle()
    with pytest.raises(BackendUnavailableError, match="the shard is on elsewhere"):
        Shard.attach(far)
    reader = Shard.attach(handle)
    one.close()
    with pytest.raises(BackendUnavailableError, match="cannot map"):
        Shard.attach(handle)
    one.add(VALUE)
    np.testing.assert_array_equal(reader.read(), 2 * VALUE)


def test_shards_leave_no_descriptors():
    tagged_process.has_ended(process_tag.my_tag())  # what is watched, stays
    before = descriptors()
    made = [Shard(VALUE) for _ in range(3)]
    readers = [Shard.attach(one.handle()) for one in made]
    made.clear()
    gc.collect()
    for found in [reader.read() for reader in readers]:
        np.testing.assert_array_equal(found, VALUE)
    readers.clear()
    gc.collect()
    assert descriptors() == before


def test_shards_leave_descriptors_for_others(monkeypatch):
    before = descriptors()
    monkeypatch.setattr("resource.getrlimit", lambda _: (8, 1024))
    with pytest.raises(BackendUnavailableError, match="ulimit -n"):
        Shard.attach(Shard(VALUE).handle())
    gc.collect()
    assert descriptors() == before


def test_a_table_is_not_gathered_from_a_part_whose_owner_ended_in_a_change(monkeypatch):
    owned = [Shard(VALUE), Shard(VALUE)]
    parts = [Shard.attach(one.handle()) for one in owned]
    dead = parts[1]._owner = -1
    has_ended = set()

    def torn(*_):
        has_ended.add(dead)  # after the first look
        return -4

    monkeypatch.setattr(shard_reader, "gather", torn)
    monkeypatch.setattr(shard_reader, "has_ended", has_ended.__contains__)
    with pytest.raises(PeerLostError, match="has ended"):
        ShardReader.gather(parts, np.array([0, 4, 8]), np.arange(8), np.empty((8, 3)))
