"""Instances of kernels that the checks compile: files, and their templates' parameters."""

from __future__ import annotations

from helpers.gpu_kernels.arrays import dtype_of
from mpistrat.collectives.backends.gpu.kernels.source import op_name, type_name
from mpistrat.errors import UsageError
from mpistrat.tables.reduction_ops import OPS, check_op

__all__ = ["CASTS", "DTYPES", "FLOATS", "ONE_SHOTS", "RULES", "UPDATES", "instances", "reductions"]

FLOATS = ("float16", "bfloat16", "float32", "float64")
DTYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *FLOATS,
    *("complex64", "complex128"),
)
CASTS = tuple((to, start) for to in FLOATS for start in FLOATS if to != start)
ONE_SHOTS = (
    *(("sum", "float32"), ("sum", "float16"), ("mean", "bfloat16"), ("mean", "int32")),
    *(("max", "float64"), ("sum", "complex128"), ("prod", "bool")),
)
RULES = ("Descent", "Momentum", "Nesterov", "Adagrad", "Adam", "AmsGrad")
UPDATES = (
    *((rule, "float32", "float32") for rule in RULES),
    *((rule, "float16", "float32") for rule in ("Descent", "Momentum", "Adam")),
    *(("Adam", "bfloat16", "bfloat16"), ("Adagrad", "float64", "float64")),
    *(("Momentum", "float32", "float64"), ("AmsGrad", "float64", "float16")),
)
# One of each kind and size, for sums; one of each kind for the ops whose code differs.
_SUMMED = ("bool", "int8", "uint16", "int32", "uint64", *FLOATS, "complex64")
_FEW = ("bool", "int32", "float16", "float64", "complex64")
_OTHERS = ("prod", "min", "mean")


def _has_meaning(op: str, dtype: str) -> bool:
    try:
        check_op(op, dtype_of(dtype))
    except UsageError:
        return False
    return True


def reductions(*, are_all: bool) -> list[tuple[str, str]]:
    """Return pairs of op and dtype: all that have a meaning, or those in which code differs."""
    pairs = [(op, dtype) for op in OPS for dtype in DTYPES if _has_meaning(op, dtype)]
    return [
        (op, dtype)
        for op, dtype in pairs
        if are_all or (op == "sum" and dtype in _SUMMED) or (op in _OTHERS and dtype in _FEW)
    ]


def instances(family: str, *, are_all: bool = False) -> list[tuple[str, ...]]:
    """Return the kernels of a family (a file) that its checks launch, each with its parameters."""
    if family == "slice_reduce":
        found = [(op_name(op), type_name(dtype_of(t))) for op, t in reductions(are_all=are_all)]
    elif family == "one_shot":
        found = [(op_name(op), type_name(dtype_of(t))) for op, t in ONE_SHOTS]
    elif family == "cast":
        found = [(type_name(dtype_of(to)), type_name(dtype_of(start))) for to, start in CASTS]
    elif family == "scatter_add":
        return [(family, type_name(dtype_of(name))) for name in DTYPES]
    elif family == "row_order":
        return [("order_few",), ("make_keys",), ("order_digit",)]
    elif family == "updates":
        return [
            ("update", f"mpistrat::{rule}", *(type_name(dtype_of(t)) for t in types))
            for rule, *types in UPDATES
        ]
    else:
        return [("move_pieces",)]
    return [(family, *parameters) for parameters in found]
