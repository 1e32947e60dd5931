"""The functions that launch the kernels, on a GPU through CuPy: one case of each family."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from helpers.gpu_kernels.arrays import dtype_of, random_values, same_bits
from helpers.gpu_kernels.reductions import expected
from mpistrat.collectives.arrays import gpu_devices
from mpistrat.collectives.backends.gpu.kernels import (
    compiling,
    launch,
    movement,
    reductions,
    rows,
    source,
    updates,
)
from mpistrat.errors import BackendUnavailableError, UsageError
from mpistrat.tables.reduction_ops import result_dtype
from mpistrat.tables.update_rules import AdagradRule, AdamRule, Rule, SGDRule

try:
    gpu_devices.require(["GPU:0"])
except BackendUnavailableError as error:
    pytest.skip(str(error), allow_module_level=True)

import cupy

from mpistrat.testing.sets import takes_long

SIZE = 10_001
_IS_HIP = cupy.cuda.runtime.is_hip


@pytest.fixture
def generator():
    return np.random.default_rng(8)


@pytest.mark.parametrize(
    ("op", "dtype"), [("sum", "float32"), ("mean", "float16"), ("max", "int8"), ("mean", "int64")]
)
def test_slices_of_three_ranks_make_the_whole(generator, op, dtype):
    arrays = [random_values(generator, dtype_of(dtype), SIZE) for _ in range(3)]
    want = expected(op, arrays)
    sources = [cupy.asarray(one) for one in arrays]
    result = result_dtype(op, dtype_of(dtype))
    in_place = result == sources[0].dtype
    results = sources if in_place else [cupy.zeros(SIZE, result) for _ in range(3)]
    addresses = [[one.data.ptr for one in some] for some in (sources, results)]
    for begin, end in ((0, 3001), (3001, 3001), (3001, 8000), (8000, SIZE)):
        reductions.slice_reduce(op, dtype_of(dtype), *addresses, begin, end)
    for one in results:
        assert same_bits(one.get(), want)


def test_subnormal_numbers_are_kept():
    """Not so by the kernels that CuPy compiles itself."""
    small = cupy.array([1e-40, 1e-42], np.float32)
    out = cupy.zeros_like(small)
    reductions.slice_reduce("sum", small.dtype, [small.data.ptr] * 2, [out.data.ptr], 0, 2)
    assert same_bits(out.get(), small.get() * np.float32(2))
    assert (cupy.add(small, small).get() == 0).all()


def test_one_shot_of_one_rank(generator):
    # More ranks need a GPU each: tests/helpers/gpu_kernels/one_shot.py has them on the host.
    array = random_values(generator, dtype_of("float16"), SIZE)
    given, out = cupy.asarray(array), cupy.zeros(SIZE, np.float16)
    slots = [cupy.zeros(SIZE, np.float16) for _ in range(2)]
    flags = cupy.zeros(reductions.FLAGS_NBYTES, np.uint8)
    words = cupy.cuda.alloc_pinned_memory(8)
    np.frombuffer(words, np.uint32, 2)[:] = 0
    shared = reductions.OneShot(
        rank=0,
        slots=((slots[0].data.ptr,), (slots[1].data.ptr,)),
        flags=(flags.data.ptr,),
        cancel=words.ptr,
        missing=words.ptr + 4,
    )
    for number in (1, 2):
        arrays = (given.data.ptr, out.data.ptr)
        reductions.one_shot(shared, "sum", dtype_of("float16"), arrays, SIZE, number)
        assert same_bits(slots[number % 2].get(), array)
    assert same_bits(out.get(), array)


@pytest.mark.parametrize("count", [3, 60])  # in the arguments of the launch, and in a table
def test_arrays_are_packed_and_unpacked(generator, count):
    arrays = [generator.integers(0, 9, n, np.uint8) for n in generator.integers(0, 3000, count)]
    there = [cupy.asarray(one) for one in arrays]
    whole = np.concatenate(arrays)
    flat = cupy.zeros(whole.size, np.uint8)
    movement.pack(there, flat.data.ptr)
    assert same_bits(flat.get(), whole)
    back = [cupy.zeros_like(one) for one in there]
    movement.unpack(flat.data.ptr, back)
    for got, want in zip(back, arrays, strict=True):
        assert same_bits(got.get(), want)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_arrays_are_joined(generator, axis):
    shapes = [[3, 4, 5] for _ in range(3)]
    for shape, length in zip(shapes, (2, 0, 7), strict=True):
        shape[axis] = length
    arrays = [generator.standard_normal(shape) for shape in shapes]
    want = np.concatenate(arrays, axis)
    out = cupy.zeros(want.shape)
    movement.concatenate([cupy.asarray(one) for one in arrays], axis, out)
    assert same_bits(out.get(), want)


def test_arrays_are_cast(generator):
    arrays = [random_values(generator, dtype_of("float32"), n) for n in (1, SIZE)]
    results = [cupy.zeros(one.size, np.float16) for one in arrays]
    movement.cast([cupy.asarray(one) for one in arrays], results)
    with np.errstate(all="ignore"):
        for got, one in zip(results, arrays, strict=True):
            assert same_bits(got.get(), one.astype(np.float16))


@pytest.mark.parametrize("rule", [SGDRule(momentum=0.9), AdagradRule(), AdamRule()], ids=repr)
def test_rules_are_applied(generator, rule):
    wants, work, given = [], [], []
    for name in ("float32", "float16"):
        want = random_values(generator, dtype_of(name), SIZE)
        dtype = rule.slot_dtype(want.dtype)
        slots = {s: np.full(SIZE, v, dtype) for s, v in rule.initial_slots().items()}
        gradient = random_values(generator, dtype_of("float32"), SIZE)
        there = {s: cupy.asarray(one) for s, one in slots.items()}
        work.append(updates.Update(cupy.asarray(want), there, cupy.asarray(gradient)))
        wants.append((want, slots))
        given.append(gradient)
    for step in (1, 2):
        updates.apply_rule(rule, work, step, 0.01)
        with np.errstate(all="ignore"):
            for (want, slots), gradient in zip(wants, given, strict=True):
                rule.apply_in_numpy(want, slots, gradient, step, 0.01)
    for one, (want, slots) in zip(work, wants, strict=True):
        assert same_bits(one.variable.get(), want)
        for name, slot in slots.items():
            assert same_bits(one.slots[name].get(), slot)


def test_scaled_arrays_are_added():
    to, what = np.arange(SIZE, dtype=np.float32), np.full(SIZE, 0.1, np.float32)
    there = cupy.asarray(to)
    updates.add_scaled([(there, cupy.asarray(what))], -0.3)
    assert same_bits(there.get(), to + what * np.float32(-0.3))


def test_rows_are_added_in_order(generator):
    table = random_values(generator, dtype_of("float32"), 50 * 8).reshape(50, 8)
    values = random_values(generator, dtype_of("float32"), 300 * 8).reshape(300, 8)
    indices = generator.integers(0, 50, 300)
    there = cupy.asarray(table)
    rows.scatter_add(there, indices, cupy.asarray(values))
    with np.errstate(all="ignore"):
        np.add.at(table, indices, values)
    assert same_bits(there.get(), table)


@takes_long()
def test_a_stream_of_the_callers_is_used():
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        to, what = cupy.zeros(SIZE), cupy.ones(SIZE)
        for _ in range(5):
            updates.add_scaled([(to, what)], 1.0)
        assert float(to.sum()) == 5 * SIZE


def test_a_kernel_is_compiled_once():
    first = launch.kernel(0, "move_pieces", file="pieces")
    assert launch.kernel(0, "move_pieces", file="pieces") is first


COMPILES = """
import sys
from cupy.cuda import compiler
from mpistrat.collectives.backends.gpu.kernels import launch
compile, count = compiler.compile_using_nvrtc, [0]
def counted(*arguments):
    count[0] += 1
    return compile(*arguments)
compiler.compile_using_nvrtc = counted
for name, *parameters, file in (
    ("move_pieces", "pieces"),
    ("cast", "float", "mpistrat::Half", "cast"),
    ("cast", "double", "float", "cast"),
):
    launch.kernel(0, name, *parameters, file=file)
print(count[0])
"""


@takes_long()
@pytest.mark.deadline(60)
def test_later_processes_take_kernels_from_the_cache(tmp_path):
    env = {**os.environ, "CUPY_CACHE_DIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", COMPILES]
    found = [
        subprocess.run(command, env=env, capture_output=True, text=True, timeout=50, check=True)
        for _ in range(2)
    ]
    assert [one.stdout.split() for one in found] == [["3"], ["0"]]


@takes_long()
def test_a_file_that_was_cut_off_is_written_again(tmp_path):
    env = {**os.environ, "CUPY_CACHE_DIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", COMPILES]
    subprocess.run(command, env=env, capture_output=True, timeout=50, check=True)
    files = sorted(tmp_path.glob("mpistrat-*"))
    assert len(files) == 3
    whole = [file.read_bytes() for file in files]
    files[0].write_bytes(whole[0][:-5])
    files[1].write_bytes(b"")
    files[2].write_bytes(bytes([whole[2][0] ^ 1]) + whole[2][1:])
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=50, check=True)
    assert done.stdout.split() == ["3"]
    assert sorted(tmp_path.glob("mpistrat-*")) == files
    assert all(file.stat().st_size > 1000 for file in files)


@pytest.mark.parametrize("setting", ["no folder", "in memory"])
def test_without_files_each_process_compiles(tmp_path, monkeypatch, setting):
    if setting == "in memory":
        monkeypatch.setenv("CUPY_CACHE_IN_MEMORY", "1")
    else:
        (tmp_path / "file").touch()
        monkeypatch.setattr(compiling, "_folder", lambda: tmp_path / "file")
    compiled = []
    monkeypatch.setattr(
        cupy.cuda.compiler,
        "compile_using_nvrtc",
        lambda *given, plainly=cupy.cuda.compiler.compile_using_nvrtc: (
            compiled.append(given) or plainly(*given)
        ),
    )
    code = source.program("cast", [("cast", "float", "mpistrat::Half")])
    for _ in range(2):
        module = compiling.loaded(code, source.OPTIONS["amd" if _IS_HIP else "nvidia"])
        module.get_function(source.instance_name("cast", "float", "mpistrat::Half"))
    assert len(compiled) == 2
    assert {file.name for file in tmp_path.iterdir()} <= {"file"}


def test_mistakes_are_named():
    dtype = dtype_of("float32")
    with pytest.raises(UsageError, match="17 sources; expected 1 to 16"):
        reductions.slice_reduce("sum", dtype, [0] * 17, [0], 0, 1)
    with pytest.raises(UsageError, match="0x2; expected a multiple of 4 bytes"):
        reductions.slice_reduce("sum", dtype, [2], [0], 0, 1)
    with pytest.raises(UsageError, match="index 9 at position 1; expected 0 to 4"):
        rows.scatter_add(cupy.zeros((5, 2)), np.array([0, 9]), cupy.zeros((2, 2)))
    with pytest.raises(UsageError, match="no GPU kernel for the rule _Own"):
        updates.apply_rule(_Own(), [], 1, 0.1)
    with pytest.raises(UsageError, match="lengths \\[1, 1\\] along axis 0"):
        movement.joined([0, 0], [1, 1], 0, 0, (3,), 4)


class _Own(Rule):
    def change(self, slots, gradient, step, learning_rate):
        return gradient
