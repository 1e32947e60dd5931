"""Names of reductions that are not ours are told with ours."""

import numpy as np
import pytest

from mpistrat import ReduceOp
from mpistrat.errors import ArgumentTypeError, UsageError
from mpistrat.tables.reduction_ops import check_op


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
