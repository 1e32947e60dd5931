"""Launch the kernels of kernels.cu and check them: python launches.py LIBRARY [NAME...].

A program of its own, since sanitizers must be loaded before Python, faults end the process, and
the variables of threads/ are read once.
"""

import os
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[3]))

from gpu.pretend.kernels_on_host import Kernels

kernels: Kernels
RACES = "libtsan" in os.environ.get("LD_PRELOAD", "")


def check_numbers_of_threads_and_blocks():
    out = np.zeros(24 * 12, np.uint32)
    kernels.launch("number_threads", (2, 3, 4), (3, 2, 2), out)
    assert out.tolist() == [1000 * block + thread for block in range(24) for thread in range(12)]


def check_largest_block():
    out = np.zeros(3 * 1024, np.uint32)
    kernels.launch("number_threads", 3, 1024, out)
    assert out[-1] == 2 * 1000 + 1023


def check_block_barrier_and_shared_memory():
    values = np.arange(1024, dtype=np.float32)
    out = np.zeros(4, np.float32)
    for _ in range(3):  # stacks and OS threads are used again
        kernels.launch("block_sums", 4, 256, out, values)
        assert out.tolist() == values.reshape(4, 256).sum(axis=1).tolist()


def check_many_barriers():
    ring = np.arange(64, dtype=np.int32)
    kernels.launch("rotate", 1, 64, ring, 70)
    assert ring.tolist() == np.roll(np.arange(64), -70).tolist()


def check_dynamic_shared_memory():
    data = np.arange(48, dtype=np.int32)
    kernels.launch("reverse_dynamic", 1, 48, data, shared_bytes=data.nbytes)
    assert data.tolist() == list(range(48))[::-1]


def check_shared_memory_starts_as_rubbish():
    out = np.zeros(5 * 32, np.uint32)
    kernels.launch("read_shared", 5, 32, out)
    assert set(out.tolist()) == {0xA5A5A5A5}


def check_shuffles():
    down, up, mixed, first = (np.zeros(64, np.int32) for _ in range(4))
    kernels.launch("shuffles", 1, 64, down, up, mixed, first)
    lanes = np.arange(64)
    assert down.tolist() == np.minimum(lanes + 1, 63).tolist()
    assert up.tolist() == np.where(lanes % 8 >= 2, lanes - 2, lanes).tolist()
    assert mixed.tolist() == (lanes ^ 5).tolist()
    assert first.tolist() == [3] * 64


def check_value_of_a_lane_that_ended_is_rubbish():
    down, up, mixed, first = (np.zeros(40, np.int32) for _ in range(4))
    kernels.launch("shuffles", 1, 40, down, up, mixed, first)
    assert down[38] == 39
    assert down.view(np.uint32)[39] == 0xA5A5A5A5


def check_votes():
    ballot, counts = np.zeros(64, np.uint64), np.zeros(64, np.int32)
    kernels.launch("votes", 1, 64, ballot, counts)
    assert set(ballot.tolist()) == {sum(1 << lane for lane in range(0, 64, 3))}
    assert set(counts.tolist()) == {100 * 32 + 10 * 1 + 0}


def check_shuffle_of_the_lanes_that_come():
    out = np.zeros(64, np.int32)
    kernels.launch("half_shuffles", 1, 64, out)
    assert out.tolist() == [lane ^ 1 for lane in range(16)] + [48] * 48


def check_shuffles_behind_a_branch():
    inside, behind = np.full(64, -1, np.int32), np.zeros(64, np.int32)
    kernels.launch("shuffles_behind_a_branch", 1, 64, inside, behind)
    assert inside.tolist() == [5 if lane % 4 == 1 else -1 for lane in range(64)]
    assert set(behind.tolist()) == {106 + 64}


def check_halves_are_rounded_at_each_step():
    out = np.zeros(4, np.float32)
    kernels.launch("halves", 1, 1, out)
    assert out.tolist() == [1, 1, 1 + 2**-10, -2.5]


def check_launch_bounds():
    out = np.zeros(64, np.uint32)
    kernels.launch("at_most_32", 2, 32, out)
    assert out.tolist() == [1] * 32 + [0] * 32
    for block in (33, (8, 8, 1)):
        try:
            kernels.launch("at_most_32", 2, block, out)
        except ValueError:
            assert not out[32:].any()
            continue
        raise AssertionError(block)


def check_blocks_that_wait_for_one_another():
    flags, data = np.zeros(64, np.uint32), np.zeros(64, np.uint32)
    kernels.launch("chain", 64, 2, flags, data)
    assert data.tolist() == list(range(64))[::-1]


def check_blocks_that_wait_without_giving_way():
    if RACES:
        return  # a race, as it would be on a GPU: volatile orders nothing
    flags = np.zeros(8, np.uint32)
    kernels.launch("chain_by_volatile", 8, 1, flags)
    assert flags.tolist() == [1] * 8


def check_blocks_that_wait_with_all_threads_at_a_barrier():
    threads = 32 if RACES else 1024  # ThreadSanitizer has room for 8000
    flags, data = np.zeros(64, np.uint32), np.zeros(64, np.uint32)
    kernels.launch("chain_of_barriers", 64, threads, flags, data)
    assert data.tolist() == [threads * (63 - block) for block in range(64)]


def check_atomics():
    counter, total = np.zeros(1, np.uint32), np.zeros(1)
    kernels.launch("count", 100, 64, counter, total)
    assert (counter[0], total[0]) == (6400, 3200)


def check_lock():
    if RACES:
        return  # its order comes from a fence, which ThreadSanitizer does not know
    lock, data = np.zeros(1, np.uint32), np.zeros(1, np.uint32)
    kernels.launch("take_turns", 4, 16, lock, data)
    assert data[0] == 64


def check_what_no_gpu_takes():
    out = np.zeros(1, np.uint32)
    for grid, block in ((0, 1), (1, 0), (1, 1025)):
        try:
            kernels.launch("number_threads", grid, block, out)
        except ValueError:
            continue
        raise AssertionError((grid, block))


def show_order():
    following, order = np.zeros(1, np.uint32), np.zeros(8, np.uint32)
    kernels.launch("note_order", 1, 8, following, order)
    print(*order)


def show_cost():
    out = np.zeros(256, np.float32)
    values = np.zeros(256 * 256, np.float32)
    times = []
    for _ in range(50):
        start = time.perf_counter()
        kernels.launch("block_sums", 1, 256, out, values)
        times.append(time.perf_counter() - start)
    print(min(times))


def fault_two_barriers():
    kernels.launch("two_barriers", (3, 1, 1), 8, np.zeros(8, np.int32))


def fault_outside_mask():
    kernels.launch("outside_mask", 1, 16, np.zeros(16, np.int32))


def fault_barrier_and_shuffle():
    kernels.launch("barrier_and_shuffle", 1, 16, np.zeros(16, np.int32))


def fault_overflow():
    kernels.launch("overflow", 1, 4, np.zeros(1, np.int32))


def fault_wild():
    kernels.launch("wild", (2, 1, 1), 8, 16)


def fault_past_the_end():
    kernels.launch("past_the_end", 1, 64, np.zeros(10, np.float32), 10)


def main(library: str, *names: str) -> None:
    global kernels  # noqa: PLW0603 (each function reads it)
    kernels = Kernels(Path(library))
    for name in names or [name for name in globals() if name.startswith("check_")]:
        globals()[name]()
    print("done")


if __name__ == "__main__":
    main(*sys.argv[1:])
