"""Logarithmic axes of times, sizes and ranks, with ticks that are read without a calculator."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator

from mpistrat.bench.report.units import format_size, format_time

__all__ = ["rank_axis", "rate_axis", "size_axis", "some_of", "time_axis"]

_LEAST_SPAN = 4.0
_MOST_TICKS = 9
_FEW_TICKS = 12.0  # spans up to which 1, 2 and 5 would be too few


def time_axis(axis: Any, times_us: Iterable[float]) -> None:
    """Make an axis logarithmic in time, at least over a factor of 4, with units at its ticks."""
    _logarithmic(axis, times_us, _tick)


def rate_axis(axis: Any, rates: Iterable[float]) -> None:
    """Make an axis logarithmic in a rate, whose unit is in the title."""
    _logarithmic(axis, rates, _plain_number)


def size_axis(axes: Any, sizes: Iterable[int], label: str = "message size") -> None:
    """Make the x axis logarithmic in bytes, with ticks at sizes that were measured."""
    axes.set_xscale("log", base=2)
    shown = some_of(sorted(set(sizes)), _MOST_TICKS)
    axes.xaxis.set_major_locator(FixedLocator(shown))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: format_size(round(value))))
    axes.tick_params(axis="x", labelrotation=35)
    axes.set_xlabel(f"{label}, logarithmic")


def rank_axis(axes: Any, ranks: Iterable[int]) -> None:
    """Make the x axis logarithmic in ranks, with ticks at numbers that were measured."""
    axes.set_xscale("log", base=2)
    shown = some_of(sorted(set(ranks)), _MOST_TICKS)
    axes.xaxis.set_major_locator(FixedLocator(shown))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{round(value):,}"))
    axes.set_xlabel("ranks, logarithmic")


def some_of(values: Sequence[int], most: int) -> list[int]:
    """Return at most so many of some values, evenly chosen, the first and the last among them."""
    if len(values) <= most:
        return list(values)
    places = [round(place * (len(values) - 1) / (most - 1)) for place in range(most)]
    return [values[place] for place in places]


def _logarithmic(axis: Any, values: Iterable[float], told: Callable[[float], str]) -> None:
    above_0 = [value for value in values if value > 0]
    low, high = min(above_0, default=1.0) * 0.8, max(above_0, default=1.0) * 1.25
    if high / low < _LEAST_SPAN:
        middle = (low * high) ** 0.5
        low, high = middle / _LEAST_SPAN**0.5, middle * _LEAST_SPAN**0.5
    getattr(axis.axes, f"set_{axis.axis_name}scale")("log")
    getattr(axis.axes, f"set_{axis.axis_name}lim")(low, high)
    has_many_decades = high / low > 300
    subs: Sequence[float] = (1.0,) if has_many_decades else (1.0, 2.0, 5.0)
    if high / low < _FEW_TICKS:
        subs = (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0)
    axis.set_major_locator(LogLocator(base=10, subs=subs, numticks=12))
    axis.set_major_formatter(FuncFormatter(lambda value, _: told(value)))
    axis.set_minor_formatter(NullFormatter())
    if has_many_decades:
        axis.set_minor_locator(NullLocator())


def _plain_number(value: float) -> str:
    return f"{value:.9f}".rstrip("0").rstrip(".")


def _tick(time_us: float) -> str:
    number, unit = format_time(time_us * (1 + 1e-9)).split(" ")
    return f"{float(number):g} {unit}"
