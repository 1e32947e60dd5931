"""Segments: shared memory that has no name to leave behind, and is there when it is written."""

import contextlib
import errno
import gc
import itertools
import mmap
import os
from pathlib import Path

import numpy as np
import pytest

from mpistrat.collectives.backends.shared_memory import bootstrap, segment
from mpistrat.collectives.backends.shared_memory.registered import Registered
from mpistrat.collectives.backends.threads import ThreadsBackend, ThreadWorld
from mpistrat.errors import CommunicationTimeoutError

KINDS = pytest.mark.parametrize("in_memory", [True, False], ids=["memfd", "dev_shm"])
BYTES = 3 * mmap.PAGESIZE + 100


def names():
    """Return our files in /dev/shm; other processes' files come and go."""
    return {path for path in Path("/dev/shm").glob("mpistrat*") if f"-{os.getpid()}-" in path.name}


def open_again(one):
    """Open a segment as another rank does, and close it again without removing its name."""
    other = segment.open_existing(one.path, one.nbytes, one.nonce)
    other.path = "/proc/"
    other.release_name()


def descriptors():
    return set(os.listdir("/proc/self/fd"))


@pytest.fixture(autouse=True)
def _leaves_nothing():
    gc.collect()  # what earlier tests left
    before = names(), descriptors()
    yield
    gc.collect()
    assert (names(), descriptors()) == before


@contextlib.contextmanager
def made(in_memory):
    one = segment.create(BYTES, in_memory)
    try:
        yield one
    finally:
        one.release_name()


@KINDS
def test_two_mappings_are_one_memory(in_memory):
    with made(in_memory) as one:
        other = segment.open_existing(one.path, one.nbytes, one.nonce)
        one.view(0, BYTES)[:] = np.arange(BYTES) % 251
        np.testing.assert_array_equal(other.view(5, BYTES - 5), np.arange(5, BYTES) % 251)
        other.view(7, 1)[0] = 255
        assert one.view(0, BYTES)[7] == 255
        assert other.address != one.address
        other.release_name()


@KINDS
def test_is_of_zeros_and_writeable(in_memory):
    with made(in_memory) as one:
        view = one.view(0, BYTES)
        assert not view.any()
        assert view.flags.writeable
        assert view.flags.c_contiguous
        assert view.ctypes.data == one.address


@KINDS
def test_every_one_has_a_nonce_of_its_own_that_users_do_not_touch(in_memory):
    with made(in_memory) as one, made(in_memory) as two:
        assert one.nonce != two.nonce
        before = one.nonce
        one.view(0, BYTES)[:] = 1
        assert one.nonce == before


@KINDS
def test_another_file_at_its_place_is_refused(in_memory):
    with made(in_memory) as one, made(in_memory) as two:
        with pytest.raises(OSError, match="is another segment here"):
            segment.open_existing(one.path, one.nbytes, two.nonce)
        with pytest.raises(OSError, match="is another file here"):
            segment.open_existing(one.path, one.nbytes + 1, one.nonce)


@KINDS
def test_without_its_name_it_cannot_be_opened_but_works_on(in_memory):
    one = segment.create(BYTES, in_memory)
    one.release_name()
    one.release_name()  # once more does nothing
    with pytest.raises(OSError, match=r"No such file|Bad file"):
        segment.open_existing(one.path, one.nbytes, one.nonce)
    one.view(0, BYTES)[:] = 3
    assert one.view(BYTES - 1, 1)[0] == 3


@KINDS
@pytest.mark.parametrize("parts", [1, 2, 3, 4, 7])
def test_the_parts_of_all_ranks_are_all_of_it(in_memory, parts):
    """Nothing is left that would have to be allocated when it is first written."""
    with made(in_memory) as one:
        held = [Path(one.path).stat().st_blocks * 512]
        for part in range(parts):
            one.reserve(part, parts)
            held.append(Path(one.path).stat().st_blocks * 512)
            # A rank that comes later than others have reserved theirs still knows it.
            open_again(one)
        assert held[-1] >= BYTES
        assert held == sorted(held)
        if parts == 3:
            assert all(b > a for a, b in itertools.pairwise(held))  # a page or more each


def test_views_keep_it_mapped():
    one = segment.create(BYTES)
    one.release_name()
    view = one.view(10, 20).view(np.uint16)[2:]
    address = one.address
    del one
    gc.collect()
    view[:] = 7
    assert view.sum() == 7 * 8
    assert view.ctypes.data == address + 14
    assert is_mapped(address)
    del view
    gc.collect()
    assert not is_mapped(address)


def is_mapped(address):
    ranges = (
        line.split()[0].split("-") for line in Path("/proc/self/maps").read_text().split("\n")[:-1]
    )
    return any(int(start, 16) <= address < int(end, 16) for start, end in ranges)


@KINDS
def test_what_cannot_be_allocated_is_an_error_and_leaves_nothing(in_memory, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    with pytest.raises(OSError, match="No space left"):
        segment.create(BYTES, in_memory)


@pytest.mark.parametrize("error", [OSError(errno.ENOSYS, "no memfd"), AttributeError("no memfd")])
def test_a_system_without_memfd_is_an_os_error(error, monkeypatch):
    def refuse(*_):
        raise error

    if isinstance(error, AttributeError):
        monkeypatch.delattr(os, "memfd_create")
    else:
        monkeypatch.setattr(os, "memfd_create", refuse)
    with pytest.raises(OSError, match="memfd"):
        segment.create(BYTES)


@pytest.mark.parametrize("posts", [0, 1], ids=["offer", "complaints"])
@KINDS
def test_a_wait_for_others_that_is_given_up_leaves_nothing(in_memory, posts):
    """The other rank comes to none, or only to the first, of the two exchanges."""
    mine, other = (ThreadsBackend.open(comm, 1.0) for comm in ThreadWorld(2).comms())
    for _ in range(posts):
        next(bootstrap.exchange(other, ""))
    steps = bootstrap.share(mine, BYTES) if in_memory else _in_dev_shm(mine)
    with pytest.raises(CommunicationTimeoutError, match="waited 0 s for all ranks"):
        bootstrap.run(steps, 0.05, mine)


def _in_dev_shm(backend):
    return bootstrap._share(backend, BYTES, False)


def test_is_not_inherited_by_programs():
    one = segment.create(BYTES)
    fd = int(one.path.rpartition("/")[2])
    assert not os.get_inheritable(fd)
    one.release_name()


# --------------------------------------------------------------------------- registered memory


class Node:
    """The kernels' node, as far as `Registered` uses it."""

    def __init__(self):
        self.regions = {}
        self.count = 0

    def add_region(self, bases, nbytes):
        self.count += 1
        self.regions[self.count] = (bases, nbytes)
        return self.count

    def remove_region(self, region):
        del self.regions[region]


def finish(steps):
    """Carry out steps that never wait for another rank."""
    try:
        while True:
            while not next(steps).Test():
                pass
    except StopIteration as stop:
        return stop.value


def alone():
    node = Node()
    registered, backend = Registered(node), ThreadsBackend.open(None, 1.0)
    return node, lambda nbytes: finish(registered.allocate(backend, nbytes, False))


@pytest.mark.parametrize("count", [1, 2, 3, 300])
def test_all_that_were_dropped_are_forgotten_when_the_next_is_made(count):
    node, allocate = alone()
    kept = allocate(100)
    many = [allocate(1) for _ in range(count)]
    assert len(node.regions) == 1 + count
    many.clear()
    while len(node.regions) > 100:  # a message has room for so many numbers
        before = len(node.regions)
        allocate(1)
        assert len(node.regions) <= before - 50
    last = allocate(1)
    assert len(node.regions) == 2
    kept[:] = last[0]
    assert [address for (address,), _ in node.regions.values()] == [
        kept.ctypes.data,
        last.ctypes.data,
    ]


def test_any_view_keeps_a_region():
    node, allocate = alone()
    view = allocate(4096).view(np.float64).reshape(2, -1)[1:, ::2]
    gc.collect()
    allocate(1)
    assert len(node.regions) == 2
    del view
    allocate(1)
    assert len(node.regions) == 1
