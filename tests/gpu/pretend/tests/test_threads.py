"""The threads of a grid: what they can do together, in any order, and faults that are found."""

import subprocess
import sys
from pathlib import Path

import pytest

from gpu.pretend.kernels_on_host import Kernels, build, environment, why_not
from mpistrat.testing.sets import repeats, takes_long

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))

SOURCE = Path(__file__).with_name("kernels.cu")
PROGRAM = Path(__file__).with_name("launches.py")
TIMEOUT_S = 120


def run(mode, *names, flags=(), **variables):
    try:
        library = build([SOURCE], mode, flags)
        variables = {**environment(mode), **variables}
    except RuntimeError as error:
        if mode != "plain" and "has no lib" in str(error):
            pytest.skip(str(error))
        raise
    return subprocess.run(
        [sys.executable, PROGRAM, library, *names],
        env=variables,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def assert_done(done):
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("done\n")
    assert "WARNING: ThreadSanitizer" not in done.stderr


@takes_long()
@pytest.mark.parametrize("order", ["numbered", "reversed", "7"])
def test_what_threads_do_together(order):
    assert_done(run("plain", PRETEND_ORDER=order))


@repeats()
@pytest.mark.parametrize("mode", ["address", "thread"])
def test_right_kernels_pass_under_sanitizers(mode):
    assert_done(run(mode))


@takes_long()
def test_order_of_threads():
    def shown(order):
        done = run("plain", "show_order", PRETEND_ORDER=order)
        assert_done(done)
        return [int(word) for word in done.stdout.split()[:-1]]

    assert shown("numbered") == list(range(8))
    assert shown("reversed") == list(range(8))[::-1]
    assert shown("3") == shown("3") != shown("4")
    assert sorted(shown("3")) == list(range(8))


@takes_long()
def test_order_that_is_none():
    done = run("plain", "show_order", PRETEND_ORDER="backwards")
    assert done.returncode < 0
    assert 'PRETEND_ORDER is "backwards": expected numbered, reversed or a number' in done.stderr


@takes_long()
@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "fault_two_barriers",
            [
                "block (0, 0, 0): its threads met at different __sync",
                "threads 0 to 2: at __syncthr",
            ],
        ),
        ("fault_outside_mask", ["block (0, 0, 0): a thread is not in the mask", "thread 8, "]),
        (
            "fault_barrier_and_shuffle",
            [
                "no thread can go on",
                "thread 7: at __syncthreads, /",
                "threads 8 to 15: at a barrier",
            ],
        ),
        ("fault_overflow", ["thread (2, 0, 0) of block (0, 0, 0): its stack overflowed"]),
        ("fault_wild", ["illegal access at address 0x10 by thread (5, 0, 0) of block ("]),
    ],
)
def test_faults_end_the_process_with_their_place(name, said):
    done = run("plain", name, PRETEND_RESIDENT="1")
    assert done.returncode < 0
    for words in said:
        assert words in done.stderr


@takes_long()
@pytest.mark.parametrize(
    ("flag", "check"),
    [
        ("-DNO_BARRIER", "check_block_barrier_and_shared_memory"),
        pytest.param("-DNO_SECOND_BARRIER", "check_many_barriers", marks=repeats()),
        ("-DRELAXED_FLAG", "check_blocks_that_wait_for_one_another"),
    ],
)
def test_missing_order_is_a_race(flag, check):
    done = run("thread", check, flags=[flag])
    assert done.returncode != 0
    assert "WARNING: ThreadSanitizer: data race" in done.stderr
    assert "kernels.cu" in done.stderr


@takes_long()
def test_an_access_past_the_end_is_found():
    done = run("address", "fault_past_the_end")
    assert done.returncode != 0
    assert "heap-buffer-overflow" in done.stderr
    assert "kernels.cu" in done.stderr


@takes_long()
def test_warps_of_32_lanes(tmp_path):
    source = tmp_path / "warp.cu"
    source.write_text(
        'extern "C" __global__ void warp(unsigned* out) {\n'
        "  out[threadIdx.x] = __shfl_down_sync(0xffffffffu, threadIdx.x, 1) + 100 * warpSize;\n}\n"
    )
    np = pytest.importorskip("numpy")
    out = np.zeros(64, np.uint32)
    Kernels(build([source], lanes=32)).launch("warp", 1, 64, out)
    assert out[[0, 31, 32, 63]].tolist() == [3201, 3231, 3233, 3263]
    with pytest.raises(RuntimeError, match="must have a bit for each lane"):
        build([source], lanes=64)


def test_arguments_are_checked():
    np = pytest.importorskip("numpy")
    kernels = Kernels(build([SOURCE]))
    with pytest.raises(TypeError, match="takes 2 arguments, got 1"):
        kernels.launch("rotate", 1, 1, np.zeros(1, np.int32))
    with pytest.raises(
        TypeError, match=r"argument 1 of kernel rotate: .* has 8 bytes, expected 4"
    ):
        kernels.launch("rotate", 1, 1, np.zeros(1, np.int32), np.int64(1))
    with pytest.raises(TypeError, match="there is no kernel nothing"):
        kernels.launch("nothing", 1, 1)


def test_a_launch_of_one_block_is_cheap():
    done = run("plain", "show_cost")
    assert_done(done)
    # 256 threads and 9 barriers: 0.1 ms when idle. New stacks and threads take ten times as long.
    assert float(done.stdout.split()[0]) < 1e-3
