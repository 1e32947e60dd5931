"""Matrix products on the pretended GPU (runtime_programs/products.py, blas_calls.py)."""

import signal

import pytest

from gpu.pretend.tests.runtime_job import outcome, run, why_not
from mpistrat.testing.sets import takes_long

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))


@takes_long()
def test_products_as_numpy_has_them():
    run("products.matrices,vectors_and_tensors,batches,nothing")


@takes_long()
def test_calls_of_cublas():
    run("products.scalars,sums_of_products,sums")


@takes_long()
@pytest.mark.parametrize("late_ms", ["0", "0-3", "20"])
def test_order(late_ms):
    run("products.in_order_of_the_stream", PRETEND_LATE_MS=late_ms)
    run("blas_calls.scalars_on_the_device", PRETEND_LATE_MS=late_ms)


def test_what_cupy_does_not_call():
    functions = "columns_with_gaps,alpha_of_zero_reads_nothing,steps_of_vectors"
    run(f"blas_calls.{functions},batches_with_distances,wrong_arguments")


def test_several_devices():
    run("products.of_each_device", PRETEND_GPUS="2")


def test_memory_of_the_host():
    assert "illegal access" in run("products.memory_of_the_host")


@takes_long()
def test_missing_functions_say_their_name():
    code, output = outcome("products.not_there")
    assert code == -signal.SIGABRT
    assert "hipblasDnrm2 does not exist here" in output
    code, output = outcome("products.not_there", PRETEND_MISSING="error")
    assert code == 1
    assert "CUBLASError" in output
