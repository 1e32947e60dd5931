"""Check the records of cases that a report draws, so that the message names a wrong value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mpistrat.bench.results.point import Point
from mpistrat.errors import UsageError

__all__ = ["check_records"]

_Number: TypeAlias = Annotated[float, Field(allow_inf_nan=False)]
_Above0: TypeAlias = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_Count: TypeAlias = Annotated[int, Field(ge=0)]
_Times: TypeAlias = dict[str, _Above0]


class _Record(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True)

    side: str = ""
    bytes: _Count | None = None
    rounds: _Count | None = None
    time_us: _Times | None = None
    busbw_GBps: _Number | None = None  # noqa: N815 - the key's name
    speedup: dict[str, _Above0] | None = None


class _Step(_Record):
    compute_us: _Times | None = None
    compute_ms: _Above0 | None = None
    scale: _Above0 | None = None
    overlapped: _Number | None = None
    efficiency: _Number | None = None


class _Rank(BaseModel):
    model_config = ConfigDict(extra="allow")

    rank: int
    host: str
    min: _Above0
    q1: _Above0
    median: _Above0
    q3: _Above0
    max: _Above0


class _Training(_Record):
    steps_us: list[_Above0] | None = None
    parts_us: dict[str, _Above0 | None] | None = None
    by_rank: list[_Rank] | None = None


class _File(_Record):
    GBps: _Number | None = None


class _Operation(BaseModel):
    model_config = ConfigDict(extra="allow")

    calls: int | None = None
    bytes: _Count | None = None
    median_us: _Above0 | None = None


class _Replay(_Record):
    recorded_us: _Above0 | None = None
    by_op: dict[str, _Operation] | None = None


class _Servers(_Record):
    times: dict[str, _Times]
    rows: int
    median: dict[str, _Number] | None = None
    table: list[int] | None = None


_OF_CASE: Mapping[str, type[_Record]] = {
    "collectives": _Record,
    "step": _Step,
    "train": _Training,
    "strong": _Training,
    "weak": _Training,
    "io": _File,
    "replay": _Replay,
    "ps": _Servers,
    "rows": _Servers,
}


def check_records(point: Point) -> None:
    """Raise `UsageError` unless the records of a point have the types that their case writes."""
    for number, record in enumerate(point.records, 1):
        model = _OF_CASE.get(str(record.get("case", point.setup.case)))
        if model is not None:
            _check(model, record, f"{point.setup.title}, record {number}")


def _check(model: type[_Record], record: Mapping[str, Any], name: str) -> None:
    try:
        model.model_validate(record)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(one) for one in first["loc"])
        raise UsageError(
            f"{name}: {place}: {first['msg']}, got {str(first['input'])[:40]!r}; expected what the"
            " case writes with --json"
        ) from error
