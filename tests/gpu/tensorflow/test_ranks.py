"""Ranks agree when a strategy is made: all combine tensors on GPUs, or none does."""

import sys
from contextlib import contextmanager

import pytest
from mpi4py import MPI

pytest.importorskip("cupy")
tf = pytest.importorskip("tensorflow")

import mpistrat.tensorflow as distribute  # noqa: E402 - TensorFlow may be missing
from helpers.tf.gpu_device import carried_on_gpus, gpus_of_tensorflow  # noqa: E402
from mpistrat.tensorflow.graph import gpu_collectives, gpu_op  # noqa: E402
from mpistrat.tensorflow.strategies import gpus  # noqa: E402
from mpistrat.testing.sets import takes_long  # noqa: E402

gpus_of_tensorflow()

pytestmark = [pytest.mark.mpi(ranks=2, timeout_s=120), takes_long(unit="file")]


@contextmanager
def warnings_of_gpus():
    """Yield the texts of warnings that tensors on GPUs are combined over the host."""
    texts = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpus, "warn_once", lambda logger, topic, text: texts.append(text))
        yield texts


@contextmanager
def cupy_for_another_platform():
    """Let CuPy be one for the platform that TensorFlow's GPUs are not of."""
    other = {"ROCM": "CUDA", "CUDA": "ROCM"}[gpu_op.platform()]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpu_op, "platform", lambda: other)
        gpu_op._load.cache_clear()
        gpu_op.load()
    yield other
    gpu_op._load.cache_clear()  # the next one that loads it names CuPy's own again


def assert_over_the_host(device="GPU:0"):
    """Return the warning of a strategy whose replicas are combined over the host."""
    with (
        warnings_of_gpus() as warned,
        distribute.MirroredStrategy([device]) as s,
        carried_on_gpus() as carried,
    ):
        step = tf.function(
            lambda: tf.distribute.get_replica_context().all_reduce("SUM", tf.ones(3))
        )
        assert s.run(step).numpy().tolist() == [2.0] * 3
        assert carried == []
        assert not s.extended.bridge.uses_gpus
    (text,) = warned
    return text


def test_a_rank_without_a_gpu_has_all_combine_over_the_host():
    text = assert_over_the_host("CPU:0" if MPI.COMM_WORLD.rank else "GPU:0")
    assert "1 of 2 ranks cannot do it on GPUs; rank 1: it has no replica on a GPU" in text


def test_one_rank_without_cupy_has_all_combine_over_the_host():
    with pytest.MonkeyPatch.context() as patch:
        if MPI.COMM_WORLD.rank == 0:
            patch.setitem(sys.modules, "cupy", None)
        text = assert_over_the_host()
    assert "1 of 2 ranks" in text
    assert "rank 0: CuPy is missing" in text
    assert "install mpistrat[cuda] or mpistrat[rocm]" in text


def test_memory_in_which_cupy_finds_something_else_is_not_used():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpu_collectives, "_read", lambda source: source.get() + 1)
        text = assert_over_the_host()
    assert "CuPy does not find TensorFlow's tensors on GPU:0" in text


def test_gpus_of_another_platform_are_not_used():
    with cupy_for_another_platform() as other:
        text = assert_over_the_host()
    assert f"but CuPy is installed for {other}" in text
