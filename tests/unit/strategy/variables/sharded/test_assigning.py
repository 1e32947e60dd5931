"""Variables in parts are assigned to as one, also in replicas."""

import numpy as np
import pytest

import mpistrat
from helpers.strategy.sharded_variables import WHOLE, make, same
from mpistrat import MirroredStrategy
from mpistrat.errors import UsageError


def test_assignments(w):
    assert w.assign(WHOLE * 2) is w
    same(w, WHOLE * 2)
    assert w.assign_add(WHOLE) is w
    assert w.assign_sub(np.full((13, 2), 0.5)) is w
    same(w, WHOLE * 3 - np.float32(0.5))
    w.assign(w * 2)
    w.assign(w)
    same(w, WHOLE * 6 - 1)


@pytest.mark.parametrize("method", ["assign", "assign_add", "assign_sub"])
@pytest.mark.parametrize(
    "value", [np.zeros((12, 2)), np.zeros(2), 1.0, np.zeros((13, 2), complex), "text"]
)
def test_what_cannot_be_assigned(w, method, value):
    with pytest.raises(UsageError):
        getattr(w, method)(value)
    same(w, WHOLE)


def test_in_place_operators_are_refused(w):
    with pytest.raises(TypeError, match="assign_add"):
        np.add(w, 1, out=w)


def test_assigned_in_a_replica():
    with MirroredStrategy(["CPU:0", "CPU:1"]) as strategy:
        with strategy.scope():
            w = make(aggregation=mpistrat.VariableAggregation.SUM)

        def add():
            replica = mpistrat.get_replica_context().replica_id_in_sync_group
            w.assign_add(np.full((13, 2), replica + 1))

        strategy.run(add)
        same(w, WHOLE + 3)
