"""Sizes and times are written in units that fit."""

import pytest

from mpistrat.bench.cost_model.readable import bytes_text, seconds_text


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (8, "8 B"),
        (64 << 10, "64 KiB"),
        (8 << 20, "8 MiB"),
        (102_228_128, "97.5 MiB"),
        (3 << 30, "3 GiB"),
        (1023.99e3, "1000 KiB"),
    ],
)
def test_sizes_are_in_binary_units(nbytes: float, text: str) -> None:
    assert bytes_text(nbytes) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (2e-9, "2 ns"),
        (3.25e-6, "3.25 us"),
        (0.1, "100 ms"),
        (119.0, "119 s"),
        (845_429.0, "9.79 days"),
        (7_200.0, "2 hours"),
        (180.0, "180 s"),
    ],
)
def test_long_times_are_in_hours_and_days(seconds: float, text: str) -> None:
    assert seconds_text(seconds) == text
