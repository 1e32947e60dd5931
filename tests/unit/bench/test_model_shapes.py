"""The gradient sets of the case ``step`` have as many parameters as were published."""

import math

import pytest

from mpistrat.bench.models import dlrm
from mpistrat.bench.models.catalogue import MODELS, gradient_set
from mpistrat.bench.models.transformers import Transformer, bert_shapes, gpt2_shapes
from mpistrat.errors import UsageError

# Tensors, and elements of the dense ones, with the source of each number in the model's module.
PUBLISHED = {
    "resnet50": (161, 25_557_032),
    "vgg16": (32, 138_357_544),
    "bert-large": (391, 335_141_888),
    "gpt2": (148, 124_439_808),
    "gpt2-xl": (580, 1_557_611_200),
    "dlrm": (16, 2_368_897),
}


@pytest.mark.parametrize("name", MODELS)
def test_parameters_are_those_that_were_published(name):
    gradients = gradient_set(name)
    assert (len(gradients.shapes), gradients.parameters) == PUBLISHED[name]
    assert gradients.nbytes == 4 * PUBLISHED[name][1]
    assert (gradients.name, gradients.scale) == (name, 1)


def test_transformers_have_so_many_parameters_a_layer():
    # 12 H² + 13 H in a layer of either; they differ in what is around the layers.
    for layers, hidden in ((1, 8), (3, 16)):
        size = Transformer(layers, hidden, vocabulary=50, positions=20)
        in_layers = layers * (12 * hidden**2 + 13 * hidden)
        encoder = hidden * (50 + 20 + 2) + 2 * hidden + hidden**2 + hidden
        decoder = hidden * (50 + 20) + 2 * hidden
        assert sum(map(math.prod, bert_shapes(size))) == in_layers + encoder
        assert sum(map(math.prod, gpt2_shapes(size))) == in_layers + decoder


def test_tables_of_dlrm():
    tables = dlrm.tables()
    assert len(tables) == 26
    assert sum(table.rows for table in tables) == 187_767_399
    assert max(table.rows for table in tables) < 40_000_000
    assert {table.width for table in tables} == {128}
    assert {min(table.rows, 2048) for table in tables} == {table.most_rows for table in tables}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("scale", [0.5, 0.01])
def test_a_scale_keeps_the_proportions(name, scale):
    whole, part = gradient_set(name), gradient_set(name, scale)
    assert len(part.shapes) == len(whole.shapes)
    assert part.parameters == pytest.approx(scale * whole.parameters, rel=0.05)
    assert part.scale == scale
    for large, small in zip(whole.shapes, part.shapes, strict=True):
        changed = [new for old, new in zip(large, small, strict=True) if new != old]
        assert len(changed) <= 1
        assert changed in ([], [max(1, round(max(large) * scale))])
    for large, small in zip(whole.tables, part.tables, strict=True):
        assert (small.width, small.lookups) == (large.width, round(2048 * scale))
        assert small.rows == max(1, round(large.rows * scale))


def test_nothing_is_scaled_away():
    part = gradient_set("dlrm", 1e-9)
    assert min(min(shape) for shape in part.shapes) == 1
    assert {(table.rows, table.lookups) for table in part.tables} == {(1, 1)}


def test_unknown_models_and_scales_are_named():
    with pytest.raises(UsageError, match=r"'resnet51'.*expected one of resnet50, vgg16"):
        gradient_set("resnet51")
    for scale in (0, -1, 1.5, math.nan):
        with pytest.raises(UsageError, match="expected a fraction above 0 and at most 1"):
            gradient_set("gpt2", scale)
