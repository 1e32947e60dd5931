"""Names of reductions, those of other libraries among them; and reductions of local arrays."""

import numpy as np
import pytest

from mpistrat import ReduceOp
from mpistrat.errors import ArgumentTypeError, UsageError
from mpistrat.tables.reduction_ops import check_op, combine


@pytest.mark.parametrize(
    ("op", "kind", "meant"),
    [
        ("SUM", UsageError, "sum"),
        ("avg", UsageError, "mean"),
        ("Average", UsageError, "mean"),
        (ReduceOp.MEAN, ArgumentTypeError, "mean"),
        (np.add, ArgumentTypeError, "sum"),
        (np.maximum, ArgumentTypeError, "max"),
        (max, ArgumentTypeError, "max"),
    ],
)
def test_a_name_of_another_library_is_told_with_ours(op, kind, meant):
    with pytest.raises(kind, match=f"expected one of .*; here it is '{meant}'$"):
        check_op(op, np.dtype("f4"))


@pytest.mark.parametrize(("op", "kind"), [("median", UsageError), (3, ArgumentTypeError)])
def test_what_is_none_at_all(op, kind):
    with pytest.raises(kind, match=r"expected one of [^;]*$"):
        check_op(op, np.dtype("f4"))


@pytest.mark.parametrize("rows", [1, 2, 3])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3)])
def test_combined_in_order_into_new_memory(rows, shape):
    rng = np.random.default_rng(rows)
    arrays = [np.array(rng.normal(0, 1e3, shape), np.float32, order="F") for _ in range(rows)]
    want = arrays[0].copy()
    for array in arrays[1:]:
        want = want + array
    for given in (arrays, np.stack(arrays)):
        got = combine("sum", given)
        assert isinstance(got, np.ndarray)
        assert got.dtype == np.float32
        assert got.flags.c_contiguous
        assert got.shape == shape
        np.testing.assert_array_equal(got, want)
        assert not any(np.may_share_memory(got, array) for array in arrays)


def test_the_sign_of_a_zero_stays():
    assert np.signbit(combine("sum", [np.array(-0.0), np.array(-0.0)]))
