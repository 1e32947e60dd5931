"""Tables of earlier launches are used again for the same memory, and for nothing else."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest

from mpistrat.collectives.arrays import gpu_devices
from mpistrat.collectives.backends.gpu.kernels import movement, reductions, table_cache, updates
from mpistrat.collectives.backends.gpu.kernels.tables import NUM_INLINE
from mpistrat.errors import BackendUnavailableError
from mpistrat.tables.update_rules import AdamRule

try:
    gpu_devices.require(["GPU:0"])
except BackendUnavailableError as error:
    pytest.skip(str(error), allow_module_level=True)

import cupy

COUNT = 60  # more than travel in the arguments of a launch


@pytest.fixture
def uploads(monkeypatch):
    """Return a list of what is copied to GPUs, by calls that begin without any kept table."""
    for kept in (table_cache._inline, table_cache._on_gpu):
        kept.cache_clear()
    plainly, seen = table_cache.uploaded, []

    def noted(content):
        seen.append(len(content))
        return plainly(content)

    monkeypatch.setattr(table_cache, "uploaded", noted)
    yield seen
    for kept in (table_cache._inline, table_cache._on_gpu):
        kept.cache_clear()


def lists(count=COUNT, first=0):
    return [cupy.full(n % 5 + 1, first + n, np.float32) for n in range(count)]


def packed(arrays):
    flat = cupy.full(sum(one.size for one in arrays), -1, np.float32)
    movement.pack(arrays, flat.data.ptr)
    return flat


def is_packed(arrays, flat):
    return np.array_equal(flat.get(), np.concatenate([one.get() for one in arrays]))


def pack_twice(arrays, flat):
    """Pack into the same memory again, after the arrays have changed."""
    movement.pack(arrays, flat.data.ptr)
    for one in arrays:
        cupy.add(one, 1, out=one)
    movement.pack(arrays, flat.data.ptr)
    return is_packed(arrays, flat)


def test_the_same_memory_is_described_once(uploads):
    arrays = lists()
    flat = packed(arrays)
    assert len(uploads) == 1
    assert pack_twice(arrays, flat)
    assert len(uploads) == 1


@pytest.mark.parametrize("count", [3, COUNT])
def test_other_memory_is_found(uploads, count):
    arrays, others = lists(count), lists(count, 100)
    flat = packed(arrays)
    movement.pack([*others[:1], *arrays[1:]], flat.data.ptr)
    assert is_packed([*others[:1], *arrays[1:]], flat)
    movement.pack(others, flat.data.ptr)
    assert is_packed(others, flat)
    movement.unpack(flat.data.ptr, arrays)  # the same addresses, the other way
    assert all(np.array_equal(a.get(), b.get()) for a, b in zip(arrays, others, strict=True))
    movement.pack(arrays[::-1], flat.data.ptr)
    assert is_packed(arrays[::-1], flat)


def test_shapes_at_the_same_addresses_differ(uploads):
    block = cupy.arange(COUNT * 8, dtype=np.float32)
    for length in (8, 3, 5):
        parts = [block[8 * i : 8 * i + length] for i in range(COUNT)]
        assert is_packed(parts, packed(parts))


def test_each_stream_and_thread_has_its_own_copy(uploads):
    arrays = lists()
    flat = cupy.zeros(sum(one.size for one in arrays), np.float32)
    cupy.cuda.Device().synchronize()
    for stream in [cupy.cuda.Stream(non_blocking=True) for _ in range(2)]:
        with stream:
            for _ in range(2):
                movement.pack(arrays, flat.data.ptr)
            assert is_packed(arrays, flat)
    thread = threading.Thread(target=movement.pack, args=(arrays, flat.data.ptr))
    thread.start()
    thread.join()
    movement.pack(arrays, flat.data.ptr)
    assert len(uploads) == 4


@pytest.mark.skipif(cupy.cuda.runtime.getDeviceCount() < 2, reason="needs two GPUs")
def test_each_gpu_has_its_own_copy(uploads):
    for index in (0, 1, 0, 1):
        with gpu_devices.on_gpu(index):
            arrays = lists()
            assert pack_twice(arrays, packed(arrays))


def test_a_copy_that_may_not_be_done_is_waited_for(monkeypatch):
    stream = SimpleNamespace(waited=[])
    stream.wait_event = stream.waited.append
    copy = table_cache._Copy(None)
    copied = copy._copied = SimpleNamespace(done=False)
    monkeypatch.setattr(cupy.cuda, "get_current_stream", lambda: stream)
    copy.wait()  # the launch that follows the copy
    assert stream.waited == []
    copy.wait()
    copied.done = True
    copy.wait()
    copied.done = None  # known to be done: not asked again
    copy.wait()
    assert stream.waited == [copied]


def test_few_tables_are_kept_and_no_large_ones(uploads):
    arrays = lists()
    flats = [packed(arrays) for _ in range(80)]
    kept = table_cache._on_gpu.cache_info()
    assert kept.currsize == kept.maxsize == 32
    many = [arrays[0]] * 4000
    assert is_packed(many, packed(many))
    assert table_cache._on_gpu.cache_info().misses == kept.misses
    assert all(is_packed(arrays, one) for one in flats)


def test_kept_tables_keep_no_block_of_the_pool(uploads):
    arrays = lists()
    flat, pool = packed(arrays), cupy.get_default_memory_pool()
    pool.free_all_blocks()
    before, large = pool.total_bytes(), cupy.zeros(2**24, np.uint8)
    del large  # a free block, in which a table of a few kB would have room
    movement.unpack(flat.data.ptr, arrays)
    assert len(uploads) == 2
    pool.free_all_blocks()
    assert pool.total_bytes() == before


def test_without_memory_of_its_own_a_table_is_in_the_pool(uploads, monkeypatch):
    def no_memory(nbytes):
        raise cupy.cuda.memory.OutOfMemoryError(nbytes, 0)

    monkeypatch.setattr(table_cache, "_pool", lambda: SimpleNamespace(malloc=no_memory))
    arrays = lists()
    assert is_packed(arrays, packed(arrays))


def test_threads_pack_at_the_same_time(uploads):
    def work(number):
        with cupy.cuda.Stream(non_blocking=True):
            arrays = lists(COUNT, number)
            flat = packed(arrays)
            return all(pack_twice(arrays, flat) for _ in range(10))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(8)))


def test_numbers_of_a_rule_are_not_kept(uploads):
    """Adam's depend on the step; variables, slots and gradients stay where they are."""
    rule, start = AdamRule(), np.linspace(0.1, 1, 7, dtype=np.float32)
    work = [
        updates.Update(
            cupy.asarray(start),
            {s: cupy.full(7, v, np.float32) for s, v in rule.initial_slots().items()},
            cupy.asarray(start * (n + 1)),
        )
        for n in range(NUM_INLINE + 4)
    ]
    for step in (1, 2, 3):
        updates.apply_rule(rule, work, step, 0.1 / step)
    assert len(uploads) == 1
    for n, one in enumerate(work):
        want = start.copy()
        slots = {s: np.full_like(start, v) for s, v in rule.initial_slots().items()}
        for step in (1, 2, 3):
            rule.apply_in_numpy(want, slots, start * np.float32(n + 1), step, 0.1 / step)
        assert np.array_equal(one.variable.get(), want)


def test_reductions_of_the_same_memory_follow_its_content():
    arrays = [cupy.full(100, n + 1, np.float32) for n in range(3)]
    out = cupy.zeros(100, np.float32)
    sources, dtype = [one.data.ptr for one in arrays], np.dtype(np.float32)
    for op, begin, end, want in (("sum", 0, 100, 6), ("max", 0, 50, 3), ("sum", 0, 50, 16)):
        if want == 16:
            arrays[0] += 10
        reductions.slice_reduce(op, dtype, sources, [out.data.ptr], begin, end)
        assert (out[begin:end].get() == want).all()
    assert (out[50:].get() == 6).all()
