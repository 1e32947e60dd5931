"""A partitioner's variables in parts: how many, what they are called, what they start with."""

import numpy as np
import pytest

import mpistrat
from helpers.strategy.sharded_variables import WHOLE, make, same
from mpistrat import ShardedVariable, Variable
from mpistrat.errors import ArgumentTypeError, UsageError
from mpistrat.experimental import partitioners
from mpistrat.strategy.variables.sharded.partitioning import partitioned


def test_b87_parts_have_consecutive_rows_the_first_ones_more():
    w = make(np.arange(13))
    assert isinstance(w, ShardedVariable)
    assert [part.numpy().tolist() for part in w.variables] == [
        *([0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10], [11, 12])
    ]


def test_b89_names(w):
    assert w.name == "w"
    assert [part.name for part in w] == [f"w/part_{i}:0" for i in range(5)]
    assert [part.name for part in make(name=None)] == ["Variable:0"] * 5


def test_b86_called_for_each_variable_with_its_shape_and_dtype():
    calls = []

    def mine(shape, dtype):
        calls.append((shape, dtype))
        return (2, 1)

    w = partitioned(lambda all_: [Variable(**one) for one in all_], {"initial_value": WHOLE}, mine)
    assert calls == [((13, 2), np.dtype(np.float32))]
    assert [part.shape for part in w] == [(7, 2), (6, 2)]


@pytest.mark.parametrize("value", [np.zeros(()), np.zeros((0, 3)), np.zeros((1, 3)), 2.5])
def test_b86_what_has_one_part_is_a_plain_variable(value):
    def as_many_as_possible(shape, dtype):
        return [100] + [1] * (len(shape) - 1)

    makes = [lambda all_: [Variable(**one) for one in all_]] * 2
    for partitioner, maker in zip([None, as_many_as_possible], makes, strict=True):
        variable = partitioned(maker, {"initial_value": value, "name": "v"}, partitioner)
        assert type(variable) is Variable
        assert variable.name == "v:0"
        same(variable, value)


@pytest.mark.parametrize("result", [[1, 2], [0, 1], [-1, 1], [], None, 3, ["2", 1], [2.0, 1]])
def test_b86_what_is_no_division(result):
    with pytest.raises(UsageError, match="expected a list or tuple"):
        partitioned(None, {"initial_value": WHOLE}, lambda shape, dtype: result)


def test_what_is_no_partitioner():
    with pytest.raises(ArgumentTypeError, match="variable_partitioner is a int"):
        partitioned(None, {"initial_value": WHOLE}, 3)


def test_b88_colocated_variables_are_not_divided():
    strategy = mpistrat.OneDeviceStrategy("CPU:0")
    with strategy, strategy.scope():
        w = make()
        for other in (w, w.variables[1]):
            with strategy.extended.colocate_vars_with(other):
                assert type(make()) is Variable
        assert isinstance(make(), ShardedVariable)
    with mpistrat.get_strategy().extended.colocate_vars_with(Variable(1.0)):
        assert type(make()) is Variable


def test_an_initial_value_may_be_asked_for_each_part():
    asked = []

    def initial(partition_shape=(6, 2), partition_offset=(0, 0)):
        asked.append((partition_shape, partition_offset))
        return np.full(partition_shape, partition_offset[0], np.int64)

    w = make(initial, 2, shape=(6, 2), dtype=np.float64)
    assert asked == [((3, 2), (0, 0)), ((3, 2), (3, 0))]
    same(w, np.repeat([0.0, 3.0], 6).reshape(6, 2))
    asked.clear()
    same(make(initial, 1, shape=(6, 2), dtype=np.float64), np.zeros((6, 2)))
    assert asked == [((6, 2), (0, 0))]


def test_an_initial_value_that_always_gives_the_whole():
    w = make(lambda **_: WHOLE, 3, shape=(13, 2), dtype=np.float32)
    same(w, WHOLE)
    same(make(lambda: WHOLE, 3, shape=(13, 2), dtype=np.float64), WHOLE.astype(float))


def test_an_initial_value_of_another_shape():
    with pytest.raises(UsageError, match="expected that of the part"):
        make(lambda **_: WHOLE[:5], 2, shape=(13, 2), dtype=np.float32)
    with pytest.raises(UsageError, match=r"shape \(13, 2\) and shape=\(3, 2\)"):
        Variable(WHOLE, shape=(3, 2))
    with pytest.raises(ArgumentTypeError, match="needs an initial_value"):
        partitioned(None, {"name": "w"}, partitioners.FixedShardsPartitioner(2))


def test_options_are_those_of_every_part():
    w = make(np.arange(4), 2, trainable=False, dtype=np.float16)
    assert not w.trainable
    assert w.dtype == np.float16
    assert w.synchronization is mpistrat.VariableSynchronization.AUTO
    assert w.aggregation is mpistrat.VariableAggregation.NONE
