"""Word the error when ranks call different collectives, or one with arrays of other shapes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import NamedTuple

from mpistrat.collectives.checking.fingerprint import Signature
from mpistrat.collectives.health.rank_names import RankNames

__all__ = ["describe", "mismatch_text"]

_FEW = 3  # arrays of a list, all of which are shown

# What `describe` writes before the shape, and the shape, which ends before the next argument.
_SHAPE = re.compile(
    r"(.*?)shape=(.*?)(?:, (?:root|axis|bucket_bytes|memory)=|\) (?:\(|at )|$)", re.DOTALL
)
_LIST = re.compile(r"(\d+) arrays? \[(.*?)\]", re.DOTALL)  # what `describe` writes of all arrays


def describe(signature: Signature, label: str | None = None, most: int = 0) -> str:
    """Return the call as a user would write it; `label` says what it was made for.

    Of a list of arrays it tells the number, and each array if they are few, or in `most`
    characters.
    """
    op, reduction, dtype, shape, *others = signature[:-1]
    arrays = [("dtype", dtype), ("shape", shape)]
    if isinstance(dtype, tuple):
        arrays = [("", _list(dtype, shape, most))]
    rest = zip(("root", "axis", "bucket_bytes", "memory"), others, strict=True)
    named = [("op", reduction), *arrays, *rest]
    shown = (f"{n}={v}" if n else v for n, v in named if v is not None)
    call = f"{op}({', '.join(shown)})"
    return f"{call} ({label})" if label else call


def _list(dtypes: Sequence[object], shapes: Sequence[object], most: int) -> str:
    if len(dtypes) > _FEW and not most:
        return f"{len(dtypes)} arrays"
    each = "; ".join(f"{dtype} {shape}" for dtype, shape in zip(dtypes, shapes, strict=True))
    if most and len(each) > most:
        each = f"{each[:most].rpartition('; ')[0]}; ..."
    return f"{len(dtypes)} array{'' if len(dtypes) == 1 else 's'} [{each}]"


def mismatch_text(
    calls: dict[int, str],
    rank: int,
    failed: Sequence[int] = (),
    names: RankNames | None = None,
) -> str:
    """Return the message of a mismatch: rank by rank, equal calls together.

    It begins with TensorFlow's words for it if the calls are the same but for their shapes. Of
    long lists of arrays it shows the first array that is not the same on all ranks.

    Parameters
    ----------
    calls
        What each rank called; lists of arrays as :func:`describe` writes them as a whole.
    rank
        This one.
    failed
        Those that failed alone and went on, which no call is carried out with any more.
    names
        How to name the ranks; default by their numbers.
    """
    names = names or RankNames(rank, len(calls))
    groups: dict[str, list[int]] = {}
    for r, call in calls.items():
        groups.setdefault(call, []).append(r)
    shown = zip(_shortened(list(groups)), groups.values(), strict=True)
    rows = [f"  rank {names.listed(ranks)}: {call}" for call, ranks in shown]
    title = "the ranks called different collectives"
    advice = "all ranks must make the same calls in the same order with matching arguments"
    if failed:
        title = "the ranks cannot go on together"
        advice = (
            f"rank {names.listed(failed)} went on after an error that the others do not know, and"
            " may have left out calls that they have made; let such an error end the program"
        )
    elif _differ_in_shape(groups):
        title = f"Shape mismatch: {title}"
    return "\n".join([f"{title} (seen on rank {names.here}):", *rows, advice])


def _shortened(calls: list[str]) -> list[str]:
    """Return `calls` with only the first unequal array of long lists."""
    lists = [_arrays(call) for call in calls]
    columns = zip_longest(*(one for one in lists if one is not None))
    first = next((i for i, column in enumerate(columns) if len(set(column)) > 1), None)
    pairs = zip(calls, lists, strict=True)
    return [call if found is None else _with_one(call, found, first) for call, found in pairs]


def _with_one(call: str, arrays: list[str], index: int | None) -> str:
    if len(arrays) <= _FEW:
        return call
    one = ""
    if index is not None:
        found = arrays[index] if index < len(arrays) else "none"
        one = f", first difference at arrays[{index}]: {found}"
    return _LIST.sub(lambda match: f"{match[1]} arrays{one}", call, count=1)


def _arrays(call: str) -> list[str] | None:
    """Return the arrays of a call of a list, each as "float32 (2, 3)"."""
    found = _LIST.search(call)
    return None if found is None else list(filter(None, found[2].split("; ")))


class _Parts(NamedTuple):
    """A call in words: what it is, dtypes included, and its shapes."""

    operation: str
    shapes: str


def _parts(call: str) -> _Parts | None:
    arrays, found = _arrays(call), _SHAPE.match(call)
    if arrays is not None:
        pairs = [one.partition(" ") for one in arrays]
        before = _LIST.split(call)[0]
        return _Parts(f"{before}{[p[0] for p in pairs]}", str([p[2] for p in pairs]))
    return None if found is None else _Parts(found[1], found[2])


def _differ_in_shape(calls: Iterable[str]) -> bool:
    """Tell whether all calls are one operation of one dtype, on arrays of several shapes."""
    found = [_parts(call) for call in calls]
    parts = [one for one in found if one is not None]
    are_alike = len(parts) == len(found) and len({one.operation for one in parts}) == 1
    return are_alike and len({one.shapes for one in parts}) > 1
