"""The benchmark of gradients as one call: the list of ResNet-50, and the flat array beside it."""

import math

import numpy as np
import pytest

from mpistrat.collectives import Communicator

pytest.importorskip("typer")

from mpistrat.bench.cases import fused
from mpistrat.bench.harness.resnet50_shapes import gradient_shapes
from mpistrat.bench.harness.sides import backend_call


def test_gradients_of_resnet50():
    shapes = gradient_shapes()
    assert len(shapes) == 161
    assert sum(map(math.prod, shapes)) == 25_557_032
    assert sum(len(shape) == 4 for shape in shapes) == 53
    assert shapes[0] == (7, 7, 3, 64)
    assert shapes[-2:] == [(2048, 1000), (1000,)]


def test_list_and_flat_array_have_the_same_content(monkeypatch):
    shapes = gradient_shapes()[:12]
    monkeypatch.setattr(fused, "gradient_shapes", lambda: shapes)
    many, flat = fused.problems(0, 1)
    assert [array.shape for array in many.arrays] == shapes
    assert many.task.nbytes == flat.task.nbytes == 4 * sum(map(math.prod, shapes))
    np.testing.assert_array_equal(np.concatenate([a.ravel() for a in many.arrays]), flat.send)
    with Communicator() as communicator:
        call = backend_call(communicator, many)
        assert many.is_right(call)
        assert not many.is_right(lambda: call()[::-1])
