"""Errors of collectives have one class, TensorFlow's and ours, on every way calls can take."""

import pickle
import time
from contextlib import contextmanager, nullcontext

import pytest

tf = pytest.importorskip("tensorflow")

import mpistrat.tensorflow as distribute  # noqa: E402 - TensorFlow may be missing
from helpers.mistakes import refused  # noqa: E402
from helpers.tf.cases import drop  # noqa: E402
from helpers.tf.process import four_cpus  # noqa: E402
from mpistrat import errors  # noqa: E402
from mpistrat.tensorflow.graph import native_op  # noqa: E402
from mpistrat.testing.sets import repeats, takes_long  # noqa: E402

four_cpus()


@contextmanager
def without_native():
    """Let calls go through tf.numpy_function, as MPISTRAT_TF_NATIVE=0 does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native_op, "load", lambda: None)
        yield


WAYS = {
    "native eager": (nullcontext, lambda call: call),
    "native graph": (nullcontext, tf.function),
    "native xla": (nullcontext, tf.function(jit_compile=True)),
    "numpy eager": (without_native, lambda call: call),
    "numpy graph": (without_native, tf.function),
}
BUT_XLA = [way for way in WAYS if "xla" not in way]  # XLA has no gathers
FEW = ["native graph"]

on_two_ranks = pytest.mark.mpi(ranks=2, timeout_s=60)
on_every_way = pytest.mark.parametrize("way", WAYS)


def here():
    return tf.distribute.get_replica_context()


def total(s, wrap):
    """Return a step that sums two numbers over the ranks."""
    return wrap(lambda: s.run(lambda: here().all_reduce("SUM", tf.ones([2]))))


@contextmanager
def raising(ours, theirs, words):
    """Expect an error of both classes that can be sent to another process."""
    with refused(ours, words) as caught:
        yield caught
    assert isinstance(caught.value, theirs)
    assert caught.value.error_code == theirs(None, None, "").error_code
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is type(caught.value)
    assert str(again) == str(caught.value)


UNEQUAL = {
    "sums": lambda s: here().all_reduce("SUM", tf.ones([2 + s.communicator.rank])),
    "gathers": lambda s: here().all_gather(tf.ones([2, 2 + s.communicator.rank]), axis=0),
}


@on_two_ranks
@pytest.mark.parametrize(
    ("what", "way"), [("sums", way) for way in WAYS] + [("gathers", way) for way in BUT_XLA]
)
def test_a_mismatch(what, way):
    path, wrap = WAYS[way]
    with path(), distribute.MirroredStrategy(["CPU:0"]) as s:
        step = wrap(lambda: s.run(lambda: UNEQUAL[what](s)))
        for _ in range(2):
            with raising(
                errors.MismatchError, tf.errors.InvalidArgumentError, "called different"
            ) as caught:
                step()
            assert sorted(caught.value.calls) == [0, 1]
        assert total(s, wrap)().numpy().tolist() == [2.0, 2.0]


@on_two_ranks
@pytest.mark.parametrize(
    "way", [way if way in FEW else pytest.param(way, marks=repeats()) for way in WAYS]
)
def test_a_deadline_and_who_comes_after_it(way):
    path, wrap = WAYS[way]
    options = tf.distribute.experimental.CommunicationOptions(timeout_seconds=1.0)
    with path():
        s = distribute.MultiWorkerMirroredStrategy(communication_options=options)
        step = total(s, wrap)
        step()  # compiled
        if s.communicator.rank == 0:
            timeout = errors.CommunicationTimeoutError
            with raising(timeout, tf.errors.DeadlineExceededError, "rank 1") as caught:
                step()
            assert caught.value.missing == (1,)
        else:
            time.sleep(3.0)
            with raising(errors.PeerLostError, tf.errors.AbortedError, "rank 0") as caught:
                for _ in range(2):  # what rank 0 gave for the first is still there
                    step()
            assert caught.value.rank == 0
        drop(s)


@on_two_ranks
@on_every_way
def test_a_peer_that_failed(way):
    path, wrap = WAYS[way]
    with path():
        s = distribute.MirroredStrategy(["CPU:0"])
        step = total(s, wrap)
        step()
        if s.communicator.rank == 1:
            with refused(ZeroDivisionError, "."):
                s.run(lambda: 1 // 0)
        else:
            with raising(errors.PeerLostError, tf.errors.AbortedError, "rank 1") as caught:
                step()
            assert caught.value.rank == 1
        drop(s)


DTYPES = {"string": lambda: tf.constant("a"), "float8": lambda: tf.cast([1.0], "float8_e5m2")}


@on_two_ranks
@on_every_way
@pytest.mark.parametrize("what", DTYPES)
def test_a_dtype_that_cannot_be_sent(what, way):
    path, wrap = WAYS[way]
    with path(), distribute.MirroredStrategy(["CPU:0"]) as s:
        step = wrap(lambda: s.run(lambda: here().all_reduce("SUM", DTYPES[what]())))
        with raising(errors.ArgumentTypeError, tf.errors.InvalidArgumentError, "dtype"):
            step()
        assert total(s, wrap)().numpy().tolist() == [2.0, 2.0]


@on_two_ranks
@on_every_way
def test_a_closed_strategy(way):
    path, wrap = WAYS[way]
    with path():
        with distribute.MirroredStrategy(["CPU:0"]) as s:
            step = total(s, wrap)
            step()
        with raising(errors.ClosedError, tf.errors.InvalidArgumentError, "closed"):
            step()


@takes_long()
@on_two_ranks
def test_other_errors_stay_what_they_are():
    with distribute.MirroredStrategy(["CPU:0"]) as s:
        with refused(errors.MismatchError, "different"):
            tf.function(lambda: s.run(lambda: UNEQUAL["sums"](s)))()
        invert = tf.function(tf.linalg.inv)
        with refused(tf.errors.InvalidArgumentError, "not invertible") as caught:
            invert(tf.zeros([2, 2]))
        assert type(caught.value) is tf.errors.InvalidArgumentError
