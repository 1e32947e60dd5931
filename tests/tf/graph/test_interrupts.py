"""Ctrl-C while TensorFlow waits for a rank that is late: the wait ends, the others are told."""

import os
import signal
import socket
import sys
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

import mpistrat.tensorflow as distribute  # noqa: E402 - TensorFlow may be missing
from helpers.mistakes import refused  # noqa: E402
from helpers.tf.cases import drop  # noqa: E402
from helpers.tf.process import four_cpus  # noqa: E402
from mpistrat.collectives import Communicator  # noqa: E402
from mpistrat.collectives.health import interrupts  # noqa: E402
from mpistrat.errors import CommunicationError, PeerLostError  # noqa: E402
from mpistrat.tensorflow import errors  # noqa: E402
from mpistrat.tensorflow.graph import call_steps, native_op  # noqa: E402
from mpistrat.testing.sets import repeats, takes_long  # noqa: E402

four_cpus()

pytestmark = pytest.mark.mpi(ranks=2, timeout_s=60)
WAIT_S = 0.3
FAILED = (tf.errors.OpError, CommunicationError)


def here():
    return tf.distribute.get_replica_context()


@contextmanager
def struck_by(handler):
    """Let `handler` be that of the signal that stands for Ctrl-C, which test runners ignore."""
    before = signal.signal(signal.SIGUSR2, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR2, before)


@contextmanager
def struck(handler=signal.default_int_handler):
    """Send this process a signal that does what Ctrl-C does, which test runners may ignore."""
    timer = threading.Timer(WAIT_S, os.kill, (os.getpid(), signal.SIGUSR2))
    with struck_by(handler):
        timer.start()
        try:
            yield
        finally:
            timer.join()


def fitting(s):
    """Return a step of ``fit``, as Keras makes it."""
    with s.scope():
        model = tf.keras.Sequential([tf.keras.Input([3]), tf.keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    x, y = np.ones([8, 3], np.float32), np.ones([8, 1], np.float32)
    return lambda: model.fit(x, y, batch_size=4, verbose=0)


def graph(body, **options):
    def make(s):
        return tf.function(lambda: s.run(body), **options)

    return make


WAITS = {
    "all_reduce": graph(lambda: here().all_reduce("SUM", tf.ones([3]))),
    "long all_reduce": graph(lambda: here().all_reduce("SUM", tf.ones([1 << 19]))),
    "list": graph(lambda: here().all_reduce("SUM", [tf.ones([3]), tf.ones([2])])),
    "all_gather": graph(lambda: here().all_gather(tf.ones([3]), axis=0)),
    "slices": graph(
        lambda: here().all_reduce(
            "SUM", tf.IndexedSlices(tf.ones([1, 2]), tf.constant([0]), tf.constant([3, 2]))
        )
    ),
    "jit_compile": graph(lambda: here().all_reduce("SUM", tf.ones([3])), jit_compile=True),
    "fit": fitting,
    "eager": lambda s: lambda: s.run(lambda: here().all_reduce("SUM", tf.ones([3]))),
}


CASES = [
    pytest.param(what, True, id=what, marks=takes_long() if what == "fit" else ())
    for what in WAITS
]
CASES += [
    pytest.param(what, False, id=f"{what}, not native", marks=repeats())
    for what in WAITS
    if what != "jit_compile"  # which needs the native operation
]


@pytest.mark.parametrize(("what", "is_native"), CASES)
def test_an_interrupt_ends_a_wait(what, is_native):
    with pytest.MonkeyPatch.context() as patch, Communicator() as steady:
        if not is_native:
            patch.setattr(native_op, "load", lambda: None)
        s = distribute.MirroredStrategy(["CPU:0"])
        check_interrupt(s, WAITS[what](s), steady)


def check_interrupt(s, step, steady):
    """Interrupt rank 0 in a step that rank 1 comes to when rank 0 has left it."""
    step()  # an interrupt while TensorFlow traces would be another test
    if s.communicator.rank == 0:
        with pytest.raises(KeyboardInterrupt), struck():
            step()
        with refused(FAILED, r"(?s)broken.*KeyboardInterrupt"):
            step()
    steady.barrier()
    if s.communicator.rank == 1:
        with refused((*FAILED, PeerLostError), "rank 0 gave up with KeyboardInterrupt"):
            step()
            step()  # a short call can end well, since its data is there
    drop(s)


def test_an_interrupt_whose_handler_ran_in_a_callback_is_one_of_the_graph():
    """As XLA does it, which runs callbacks in the thread that calls the graph."""
    text = "KeyboardInterrupt:  [Op:__inference_step_1]"
    error = tf.errors.InternalError(None, None, text)
    call_steps.left_interrupt()  # of the tests before
    assert errors.translated(error) is error  # of another thread, or of nobody
    call_steps._thread.interrupt = struck_here = KeyboardInterrupt()
    other = tf.errors.InternalError(None, None, "out of luck")
    assert errors.translated(other) is other
    assert errors.translated(error) is struck_here
    assert errors.translated(error) is error


def test_other_handlers_run_when_the_wait_is_over():
    """What they do is not known, such as to save after this step; so nothing is given up."""
    came = []
    with Communicator() as steady, distribute.MirroredStrategy(["CPU:0"]) as s:
        step = WAITS["all_reduce"](s)
        step()
        if s.communicator.rank == 0:
            with struck(lambda number, frame: came.append(threading.current_thread())):
                assert step().numpy().tolist() == [2.0] * 3
            assert came == [threading.main_thread()]
        else:
            time.sleep(2 * WAIT_S)
            step()
        steady.barrier()
        assert step().numpy().tolist() == [2.0] * 3  # a signal of the past ends no wait


def test_an_interrupt_that_was_caught_ends_no_later_wait():
    with distribute.MirroredStrategy(["CPU:0"]) as s:
        step = WAITS["all_reduce"](s)
        step()
        with pytest.raises(KeyboardInterrupt), struck():
            time.sleep(20)
        if s.communicator.rank == 1:
            time.sleep(WAIT_S)
        assert step().numpy().tolist() == [2.0] * 3


def test_a_descriptor_of_the_programs_own_is_told():
    """Programs with asyncio have one; their waits go on."""
    own, told = socket.socketpair()
    for one in (own, told):
        one.setblocking(False)
    with distribute.MirroredStrategy(["CPU:0"]) as s, own, told:
        step = WAITS["all_reduce"](s)
        step()
        signal.set_wakeup_fd(told.fileno())
        try:
            if s.communicator.rank == 0:
                with pytest.raises(KeyboardInterrupt), struck():
                    step()
                assert own.recv(9) == bytes([signal.SIGUSR2])
            else:
                time.sleep(2 * WAIT_S)
                step()
        finally:
            assert signal.set_wakeup_fd(-1) == told.fileno()


@contextmanager
def own_descriptor():
    """Have Python note signals as asyncio does; give the socket where they can be read."""
    own, told = socket.socketpair()
    own.setblocking(False)
    told.setblocking(False)
    signal.set_wakeup_fd(told.fileno())
    try:
        with own, told:
            yield own
    finally:
        signal.set_wakeup_fd(-1)


def test_a_signal_as_the_programs_own_descriptor_is_found():
    """Handlers of asyncio run only if they read of the signal there."""
    set_descriptor = signal.set_wakeup_fd
    came = []

    def strike(*args, **options):
        before = set_descriptor(*args, **options)
        if not came:
            signal.raise_signal(signal.SIGUSR2)
        return before

    with struck_by(lambda *_: came.append(1)), own_descriptor() as own:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(signal, "set_wakeup_fd", strike)
            assert interrupts.foreign(int, "7") == 7
        assert came == [1]
        assert own.recv(9) == bytes([signal.SIGUSR2])


def test_a_descriptor_that_the_program_has_closed():
    interrupts.foreign(int)
    own, told = socket.socketpair()
    told.setblocking(False)
    signal.set_wakeup_fd(told.fileno())
    own.close()
    told.close()
    assert interrupts.foreign(int, "7") == 7
    assert signal.set_wakeup_fd(-1) == -1


@pytest.mark.parametrize("name", ["_begin", "_finish"])
def test_an_interrupt_as_python_takes_over_in_the_main_thread(name):
    """ctypes swallows it; the operation goes on as if it came a moment later."""
    function = getattr(native_op, name)

    def strike(frame, event, argument):
        if event == "call" and frame.f_code is function.__code__:
            sys.settrace(None)
            raise KeyboardInterrupt

    with Communicator() as steady:
        s = distribute.MirroredStrategy(["CPU:0"])
        if native_op.load() is None:
            pytest.skip("there is no native operation here")
        step = WAITS["eager"](s)
        step()
        if s.communicator.rank == 0:
            sys.settrace(strike)
            assert step().numpy().tolist() == [2.0] * 3
            sys.settrace(None)
        else:
            time.sleep(WAIT_S)
            step()
        steady.barrier()
        s.close()


def swallowing():
    """Do what foreign code does to the errors of handlers that run in it."""
    with suppress(KeyboardInterrupt):
        signal.raise_signal(signal.SIGUSR2)
        time.sleep(20)


def test_an_interrupt_that_foreign_code_swallows():
    with struck_by(signal.default_int_handler):
        with pytest.raises(KeyboardInterrupt):
            interrupts.foreign(swallowing)
        assert interrupts.foreign(interrupts.heeding, int, "7") == 7


def test_a_forked_child_leaves_signals_alone():
    def fork():
        child = os.fork()
        if child == 0:
            os._exit(signal.set_wakeup_fd(-1) + 1)
        return os.waitpid(child, 0)[1]

    assert interrupts.foreign(fork) == 0


def test_a_forked_child_has_no_descriptors_of_its_parent():
    """And it can run functions of its own, in and after the one that it was forked in."""

    def fork():
        descriptor = signal.set_wakeup_fd(-1)
        signal.set_wakeup_fd(descriptor)
        return descriptor, os.fork()

    descriptor, child = interrupts.foreign(fork)
    if child == 0:
        left = Path(f"/proc/self/fd/{descriptor}").exists()
        os._exit(left + 2 * (interrupts.foreign(int, "7") != 7))
    assert os.waitpid(child, 0)[1] == 0
