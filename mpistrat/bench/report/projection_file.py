"""Read the projection that ``mpistrat bench model`` wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from mpistrat.errors import UsageError

__all__ = ["PredictedValue", "Projection", "Series", "read_projection"]

_Positive = Annotated[float, Field(ge=1e-15, le=1e15, allow_inf_nan=False)]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Series(_Frozen):
    """Times by ranks: measured ones, or a model's.

    Attributes
    ----------
    name
        Of what it is.
    x
        Ranks.
    y
        Seconds.
    low, high
        The band of each; empty if there is none.
    measured
        Whether these are measurements.
    """

    name: str
    x: tuple[_Positive, ...] = Field(min_length=1)
    y: tuple[_Positive, ...]
    low: tuple[_Positive, ...] = ()
    high: tuple[_Positive, ...] = ()
    measured: bool = False

    @model_validator(mode="after")
    def _same_lengths(self) -> Series:
        lengths = {len(self.x), len(self.y), len(self.low or self.x), len(self.high or self.x)}
        if len(lengths) != 1:
            raise ValueError(f"series {self.name!r}: x, y, low and high differ in length")
        return self


class PredictedValue(_Frozen):
    """A prediction and the measurement of the same.

    Attributes
    ----------
    what
        Was predicted.
    predicted, measured
        In seconds.
    error
        predicted / measured - 1.
    """

    what: str
    predicted: float
    measured: float
    error: float


class Projection(_Frozen):
    """What a model says of larger machines.

    Attributes
    ----------
    format
        Of the file.
    title
        Of the figure.
    statements
        What follows from it, in sentences.
    series
        What is drawn.
    validation
        Predictions of points that the fit did not use.
    """

    format: Literal["mpistrat-model-1"]
    title: str
    statements: tuple[str, ...] = ()
    series: tuple[Series, ...] = ()
    validation: tuple[PredictedValue, ...] = ()


def read_projection(path: Path) -> Projection:
    """Return the content of a file.

    Raises
    ------
    UsageError
        It cannot be read, or is no projection; the message says where.
    """
    try:
        return Projection.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"--model {path}: cannot be read: {error}; expected a file of mpistrat bench model"
        ) from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(one) for one in first["loc"]) or "its content"
        raise UsageError(
            f"--model {path}: {place}: {first['msg']}; expected a file of mpistrat bench model"
        ) from error
