"""Types that Horovod cannot combine, and means of integers, which it truncates."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import numpy as np

from mpistrat.doctor.lint.collectives import collectives, first_argument
from mpistrat.doctor.lint.finding import Outcome, Rule, Trap
from mpistrat.doctor.lint.program import Program

__all__ = ["RULE"]

_INTEGERS = ("uint8", "int8", "int32", "int64", "int")
_SUMMED = (*_INTEGERS, "float16", "half", "float32", "float64", "double", "float")
_MOVED = (*_SUMMED, "uint16", "int16", "bool")
_REDUCING = ("allreduce", "grouped_allreduce", "reducescatter", "grouped_reducescatter")
_WITH_TYPE = ("cast", "constant", "zeros", "ones", "convert_to_tensor", "Variable", "fill")
_POLICIES = (*("set_global_policy", "set_dtype_policy", "set_floatx", "Policy", "DTypePolicy"),)
_LIBRARIES = ("tensorflow.", "numpy.", "ml_dtypes.", "keras.")
_SAME = "the same collective of a strategy: it takes this type, bfloat16 and complex too"
_NUMBER = "raises AttributeError (dtype): Horovod takes tensors and arrays, no Python numbers"
_MEAN = (
    "the mean of integers is truncated to an integer, without an error, and is what it does"
    " where op= is left out"
)
_MEAN_INSTEAD = 'strategy.reduce("MEAN", ...), which gives float64; or cast to a float first'
_POLICY = (
    "variables and gradients are bfloat16, which Horovod does not combine: InvalidArgumentError"
)


def _find(program: Program) -> Iterator[Trap]:
    for use, call in collectives(program):
        given = first_argument(call)
        if given is None or use.module == "horovod":
            continue
        value = program.names.value(given)
        if use.module == "horovod.tensorflow" and _is_number(program, value):
            if use.name in (*_REDUCING, "allgather", "broadcast"):
                yield Trap(call, Outcome.FAILS, _NUMBER, "tf.constant(...) around it")
            continue
        dtype = _dtype(program, value)
        if use.name in _REDUCING:
            yield from _reduced(program, call, dtype)
        elif dtype and dtype not in _MOVED and use.name in ("allgather", "broadcast", "alltoall"):
            yield Trap(call, Outcome.FAILS, _not_taken(use.name, dtype), _SAME)
    yield from _policies(program)


def _reduced(program: Program, call: ast.Call, dtype: str) -> Iterator[Trap]:
    ops = [one.value for one in call.keywords if one.arg in ("op", "average")]
    is_mean = not ops or (program.names.path(ops[0]) or "").endswith(".Average")
    if dtype and dtype not in _SUMMED:
        yield Trap(call, Outcome.FAILS, _not_taken("allreduce", dtype), _SAME)
    elif dtype in _INTEGERS and is_mean and len(call.args) < 2:
        yield Trap(call, Outcome.SILENT, _MEAN, _MEAN_INSTEAD)


def _policies(program: Program) -> Iterator[Trap]:
    for call in program.calls:
        path = program.names.path(call.func) or ""
        given = [one.value for one in call.args if isinstance(one, ast.Constant)]
        if path.endswith(_POLICIES) and "keras" in path and given[:1] == ["bfloat16"]:
            instead = (
                "mixed_bfloat16, whose variables are float32; or a strategy, which takes both"
            )
            yield Trap(call, Outcome.FAILS, _POLICY, instead)


def _not_taken(name: str, dtype: str) -> str:
    return f"raises InvalidArgumentError: Horovod's {name} does not take {dtype}"


def _is_number(program: Program, value: ast.expr) -> bool:
    """Tell whether it is written as a number, or made one by ``float()`` or ``int()``."""
    if isinstance(value, ast.Call):
        return program.names.path(value.func) in ("float", "int", "len", "round")
    return isinstance(value, ast.Constant) and isinstance(value.value, (int, float))


def _dtype(program: Program, value: ast.expr) -> str:
    """Return the type of an array as far as the program says it where it is made, else ""."""
    if not isinstance(value, ast.Call):
        return ""
    name = value.func.attr if isinstance(value.func, ast.Attribute) else ""
    path = program.names.path(value.func) or ""
    said = [one.value for one in value.keywords if one.arg == "dtype"]
    if name == "astype" or path == "tensorflow.cast":
        said += value.args[name != "astype" :][:1]
    elif path.startswith(_LIBRARIES) and name in _WITH_TYPE:
        said += value.args[1:2]
    if path == "tensorflow.complex":
        return "complex64"
    if not said and path == "tensorflow.constant" and value.args:
        return _literal_type(value.args[0])
    return _type_name(program, said[0]) if said else ""


def _type_name(program: Program, said: ast.expr) -> str:
    if isinstance(said, ast.Constant) and isinstance(said.value, str):
        return _canonical(said.value)
    path = program.names.path(said) or ""
    known = path.startswith(("tensorflow.", "numpy.", "ml_dtypes.")) or path in ("int", "bool")
    return path.rpartition(".")[2].rstrip("_") if known else ""


def _canonical(name: str) -> str:
    """Return NumPy's full name of a type: float32 for "f4"."""
    try:
        return np.dtype(name).name
    except TypeError:  # bfloat16, of which NumPy does not know
        return name


def _literal_type(node: ast.expr) -> str:
    """Return the type of a tensor of numbers as they are written, where all are of one."""
    if isinstance(node, (ast.List, ast.Tuple)):
        types = set(map(_literal_type, node.elts))
        return types.pop() if len(types) == 1 else ""
    written: type | None = type(node.value) if isinstance(node, ast.Constant) else None
    names: dict[type | None, str] = {int: "int32", float: "float32", bool: "bool"}
    return names.get(written, "")


RULE = Rule("dtypes", _find)
