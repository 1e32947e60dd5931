"""Find records that are not as their case writes them, and name the wrong value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from mpistrat.bench.report.units import plain
from mpistrat.bench.results.point import Point

__all__ = ["problem_of"]

_MOST = 1e15  # microseconds or any other figure: above it no axis and no ratio makes sense


def _without_tiny(value: float) -> float:
    """Refuse what is above 0, but less than any clock can tell: its inverse is infinite."""
    if 0 < value < 1 / _MOST:
        raise ValueError(f"expected 0 or at least {1 / _MOST:g}")
    return value


def _in_order(times: dict[str, float]) -> dict[str, float]:
    known = [times.get(name, times.get(f"{name}_us")) for name in ("min", "median", "max")]
    figures = [one for one in known if one is not None]
    if figures != sorted(figures):
        raise ValueError("expected min <= median <= max")
    return times


_Number: TypeAlias = Annotated[float, Field(ge=-_MOST, le=_MOST, allow_inf_nan=False)]
_Above0: TypeAlias = Annotated[
    float, Field(ge=0, le=_MOST, allow_inf_nan=False), AfterValidator(_without_tiny)
]
_Count: TypeAlias = Annotated[int, Field(ge=0, le=int(_MOST))]
_Times: TypeAlias = Annotated[dict[str, _Above0], AfterValidator(_in_order)]


class _Record(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True)

    side: str = ""
    kind: str | None = None
    bytes: _Count | None = None
    rounds: _Count | None = None
    time_us: _Times | None = None
    busbw_GBps: _Above0 | None = None  # noqa: N815 - the key's name
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


class _Other(BaseModel):
    """A case that the report does not know: it may write anything but these of other types."""

    model_config = ConfigDict(extra="allow")

    side: str = ""
    kind: str | None = None
    speedup: dict[str, _Above0] | None = None
    times: dict[str, _Times] | None = None
    by_rank: list[_Rank] | None = None


class _Training(_Record):
    steps_us: list[_Above0] | None = None
    parts_us: dict[str, _Above0 | None] | None = None
    by_rank: list[_Rank] | None = None


class _File(_Record):
    GBps: _Above0 | None = None


class _Operation(BaseModel):
    model_config = ConfigDict(extra="allow")

    calls: _Count | None = None
    bytes: _Count | None = None
    median_us: _Above0 | None = None


class _Replay(_Record):
    recorded_us: _Above0 | None = None
    by_op: dict[str, _Operation] | None = None


class _Servers(_Record):
    times: dict[str, _Times]
    rows: Annotated[int, Field(ge=1, le=int(_MOST))]
    median: dict[str, _Above0] | None = None
    table: Annotated[list[_Count], Field(min_length=2, max_length=2)] | None = None


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


def problem_of(point: Point, record: Mapping[str, Any]) -> str | None:
    """Return what of a record is not as its case writes it; None if nothing is."""
    model = _OF_CASE.get(str(record.get("case", point.setup.case)), _Other)
    try:
        model.model_validate(record)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(one) for one in first["loc"])
        return plain(f"{place}: {first['msg']}, got {str(first['input'])[:40]!r}", 160)
    return None
