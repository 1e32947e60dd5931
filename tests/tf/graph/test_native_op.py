"""The compiled operation: TensorFlow's own memory, errors with their text, no thread blocked.

What compiling it can do wrong is in unit/system/test_compile_on_demand.py.
"""

import functools
import logging
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from mpistrat import built_in_sizes, config
from mpistrat.errors import (
    BackendUnavailableError,
    CommunicationTimeoutError,
    MismatchError,
    UsageError,
)
from mpistrat.system import log
from mpistrat.testing.sets import takes_long

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
tf = pytest.importorskip("tensorflow")
native_op = pytest.importorskip("mpistrat.tensorflow.graph.native_op")
native_library = pytest.importorskip("mpistrat.tensorflow.graph.native_library")

pytestmark = pytest.mark.deadline(200)

KEY = 7
WAIT_S = 30
DTYPES = [
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
    *("float8_e4m3fn", "float8_e5m2", "int4", "uint4"),
]
SHAPES = [(), (0,), (5,), (3, 0, 2), (2, 3), (200, 200)]
MODES = {"eager": lambda body: body, "function": tf.function}


@pytest.fixture(scope="module", autouse=True)
def _loaded():
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MPISTRAT_TF_NATIVE", raising=False)
        if native_op.load() is None:
            pytest.skip("the operation cannot be compiled here; the warning says why")
        yield


@pytest.fixture(autouse=True)
def _callback(monkeypatch):
    monkeypatch.setattr(native_op, "_callback", None)


@pytest.fixture(params=MODES.values(), ids=MODES)
def mode(request):
    return request.param


def copy(key, inputs, outputs, shapes):
    for source, result in zip(inputs, outputs, strict=True):
        np.copyto(result, source)


def copy_later(key, inputs, outputs, shapes):
    return lambda: copy(key, inputs, outputs, shapes)


def sample(shape, dtype):
    numbers = np.arange(np.prod(shape, dtype=int)).reshape(shape) % 7
    return tf.constant(numbers.astype(tf.as_dtype(dtype).as_numpy_dtype))


def address(tensor) -> int:
    return np.asarray(memoryview(tensor)).ctypes.data


def assert_same(results, tensors):
    assert len(results) == len(tensors)
    for result, tensor in zip(results, tensors, strict=True):
        assert (result.dtype, result.shape) == (tensor.dtype, tensor.shape)
        np.testing.assert_array_equal(result.numpy(), tensor.numpy())


# --------------------------------------------------------------------------------------- values


@takes_long()
@pytest.mark.parametrize("callback", [copy, copy_later])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype(mode, dtype, callback):
    native_op.register(callback)
    tensors = [sample((5, 3), dtype)]
    assert_same(mode(lambda: native_op.call(KEY, tensors))(), tensors)


@pytest.mark.parametrize("callback", [copy, copy_later])
def test_all_shapes_at_once(mode, callback):
    native_op.register(callback)
    tensors = [sample(shape, dtype) for shape in SHAPES for dtype in ("float32", "int8")]
    assert_same(mode(lambda: native_op.call(KEY, tensors))(), tensors)


def test_many_tensors_and_none(mode):
    nums = []
    native_op.register(lambda key, i, o, s: (nums.append((key, len(i))), copy(key, i, o, s))[1])
    tensors = [sample((i,), "float32") for i in range(161)]
    assert_same(mode(lambda: native_op.call(KEY, tensors))(), tensors)
    assert mode(lambda: native_op.call(KEY + 1, []))() == []
    assert nums == [(KEY, 161), (KEY + 1, 0)]


def test_shapes_are_known_when_traced():
    spec = tf.TensorSpec([None, 3], tf.float16)
    traced = tf.function(lambda x: native_op.call(KEY, [x])).get_concrete_function(spec)
    assert traced.output_shapes[0].as_list() == [None, 3]
    assert traced.output_dtypes == [tf.float16]


def test_strings_are_refused(mode):
    native_op.register(copy)
    with pytest.raises(tf.errors.InvalidArgumentError, match="input 1 has dtype string"):
        mode(lambda: native_op.call(KEY, [sample((), "int8"), tf.constant("text")]))()


@pytest.mark.parametrize("callback", [copy, copy_later])
def test_loops_call_in_their_order(callback):
    seen = []

    def watched(key, inputs, outputs, shapes):
        seen.append(int(inputs[0].view(np.int32)[0]))
        return callback(key, inputs, outputs, shapes)

    def body(i, values):
        return i + 1, values.write(i, native_op.call(KEY, [i])[0])

    @tf.function(autograph=False)
    def loop(num):
        values = tf.TensorArray(tf.int32, num)
        return tf.while_loop(lambda i, _: i < num, body, [0, values])[1].stack()

    native_op.register(watched)
    assert loop(20).numpy().tolist() == seen == list(range(20))


def test_only_the_branch_that_is_taken_calls():
    keys = []
    native_op.register(lambda key, i, o, s: (keys.append(key), copy(key, i, o, s))[1])
    x = tf.ones(3)
    branches = tf.function(
        lambda which: tf.cond(
            which, lambda: native_op.call(1, [x])[0], lambda: native_op.call(2, [x])[0]
        )
    )
    assert_same([branches(tf.constant(True)), branches(tf.constant(False))], [x, x])
    assert keys == [1, 2]


def test_calls_of_a_function_keep_their_order_and_none_is_left_out():
    keys = []
    native_op.register(lambda key, i, o, s: (keys.append(key), copy(key, i, o, s))[1])

    @tf.function
    def body(x):
        return [native_op.call(key, [x])[0] for key in range(9)][3]

    assert_same([body(tf.ones(3))], [tf.ones(3)])
    assert keys == list(range(9))


# ------------------------------------------------------------------------------------- zero copy


@pytest.mark.parametrize("size", [100, built_in_sizes.TF_INLINE_BYTES])
def test_the_memory_is_that_of_the_tensors(mode, size):
    places = []

    def watched(key, inputs, outputs, shapes):
        places.append([array.ctypes.data for array in inputs + outputs])
        assert not inputs[0].flags.writeable
        copy(key, inputs, outputs, shapes)

    native_op.register(watched)
    body = mode(lambda x: native_op.call(KEY, [x])[0])
    source = tf.random.normal([size])
    result = body(source)
    assert places == [[address(source), address(result)]]
    assert address(source) != address(result)


# ---------------------------------------------------------------------------------------- errors

ERRORS = [
    (UsageError("a wrong array"), "InvalidArgumentError", "UsageError: a wrong array"),
    (TypeError("a type"), "InvalidArgumentError", "TypeError: a type"),
    (MismatchError("ranks differ"), "InvalidArgumentError", "MismatchError: ranks differ"),
    (CommunicationTimeoutError("late: 2"), "AbortedError", "CommunicationTimeoutError: late: 2"),
    (ZeroDivisionError("oh"), "InternalError", "ZeroDivisionError: oh"),
    (native_op.UnknownKeyError(), "FailedPreconditionError", "has the key 7: .* another process"),
    (ValueError("half \0 " + "é" * 20000), "InvalidArgumentError", "ValueError: half   éé"),
]


@pytest.mark.parametrize("is_late", [False, True], ids=["begin", "rest"])
@pytest.mark.parametrize(("error", "name", "text"), ERRORS, ids=[e[1] for e in ERRORS])
def test_exceptions_become_errors_of_tensorflow(mode, error, name, text, is_late):
    def fail(*_):
        raise error

    native_op.register((lambda *_: fail) if is_late else fail)
    with pytest.raises(getattr(tf.errors, name), match=text):
        mode(lambda: native_op.call(KEY, [tf.ones(3)]))()
    native_op.register(copy)
    assert_same(mode(lambda: native_op.call(KEY, [tf.ones(3)]))(), [tf.ones(3)])


def test_a_graph_of_another_process_finds_no_callback(mode):
    with pytest.raises(tf.errors.FailedPreconditionError, match="traced in another process"):
        mode(lambda: native_op.call(KEY, [tf.ones(3)]))()


def test_an_interrupt_of_eager_code_stays_one():
    def interrupt(*_):
        raise KeyboardInterrupt

    native_op.register(interrupt)
    with pytest.raises(KeyboardInterrupt):
        native_op.call(KEY, [tf.ones(3)])
    with pytest.raises(tf.errors.CancelledError, match="KeyboardInterrupt"):
        tf.function(lambda: native_op.call(KEY, [tf.ones(3)]))()


# ----------------------------------------------------------------------------------------- waits


@pytest.mark.parametrize("size", [10, built_in_sizes.TF_INLINE_BYTES])
def test_functions_of_many_threads_may_wait_for_each_other(size):
    """More of them than TensorFlow has threads; each ends only once all have begun."""
    num = (os.cpu_count() or 1) + 4
    everyone = threading.Barrier(num, timeout=WAIT_S)

    def meet(key, inputs, outputs, shapes):
        def rest():
            everyone.wait()
            copy(key, inputs, outputs, shapes)

        return rest

    native_op.register(meet)
    x = tf.random.normal([size])
    bodies = [tf.function(lambda key=key: native_op.call(key, [x])) for key in range(num)]
    results = {}
    threads = [
        threading.Thread(target=lambda key=key: results.update({key: bodies[key]()}))
        for key in range(num)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == list(range(num))
    for result in results.values():
        assert_same(result, [x])


ONE_THREAD = """
import os, threading
import numpy as np
import tensorflow as tf
from mpistrat.tensorflow.graph import native_op

tf.config.threading.set_inter_op_parallelism_threads(1)
tf.config.threading.set_intra_op_parallelism_threads(1)
computed = threading.Event()

def wait_for_the_products(key, inputs, outputs, shapes):
    def rest():
        if not computed.wait(30):
            raise RuntimeError("the call kept the products from being computed")
        np.copyto(outputs[0], inputs[0])
    return rest if len(inputs[0]) < 1000 else rest()  # a long call may wait where it begins

def show(x):
    computed.set()
    return x

@tf.function
def step(x, y):
    result = native_op.call(1, [x])[0]
    for _ in range(3):
        y = tf.matmul(y, y)
    return result, tf.numpy_function(show, [y], tf.float32, stateful=False)

native_op.register(wait_for_the_products)
for size in (10, 100_000):
    computed.clear()
    x = tf.random.normal([size])
    result, product = step(x, tf.eye(50))
    np.testing.assert_array_equal(result, x)
    np.testing.assert_array_equal(product, np.eye(50))
print("computed", flush=True)
os._exit(0)  # Python would free each of TensorFlow's objects: 3 s
"""


@takes_long()
def test_one_thread_of_tensorflow_computes_while_a_call_waits():
    paths = [str(Path(config.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, "-c", ONE_THREAD],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert (done.stdout, done.returncode) == ("computed\n", 0), done.stderr


# --------------------------------------------------------------------------------- without it


@pytest.fixture
def unloaded(monkeypatch, caplog, tmp_path):
    """Return a list of the warnings, with nothing loaded or compiled."""
    monkeypatch.setenv("MPISTRAT_CACHE", str(tmp_path))
    monkeypatch.setattr(log, "_once", set())
    monkeypatch.setattr(logging.getLogger("mpistrat"), "propagate", True)
    for module, name in ((native_op, "_load"), (native_library, "_operations")):
        monkeypatch.setattr(module, name, functools.cache(getattr(module, name).__wrapped__))
    return caplog


def test_it_can_be_turned_off_without_a_word(unloaded, monkeypatch):
    monkeypatch.setenv("MPISTRAT_TF_NATIVE", "0")
    assert native_op.load() is None
    assert unloaded.messages == []
    with pytest.raises(BackendUnavailableError, match="not available here"):
        native_op.call(KEY, [tf.ones(3)])


def test_without_a_compiler_it_warns_once(unloaded, monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    assert native_op.load() is None
    native_op._load.cache_clear()
    native_library._operations.cache_clear()
    assert native_op.load() is None
    [message] = unloaded.messages
    assert "tf.numpy_function" in message
    assert "found no C++ compiler: none of g++, c++, clang++ is on the PATH" in message


def test_what_cannot_be_loaded_is_told(unloaded, monkeypatch, tmp_path):
    compiler = tmp_path / "compiler"
    compiler.write_text('#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\necho no ELF > "$2"\n')
    compiler.chmod(0o700)
    monkeypatch.setenv("CXX", str(compiler))
    assert native_op.load() is None
    [begun, message] = unloaded.messages
    assert begun.startswith("compiling operations.cc")
    assert "operations" in message
    assert "invalid ELF header" in message or "file too short" in message
