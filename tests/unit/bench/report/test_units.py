"""Numbers as people read them, and text that fonts and XML can hold."""

import pytest

from mpistrat.bench.report.units import (
    format_batch,
    format_layout,
    format_size,
    format_time,
    plain,
    sentence,
    unit_of,
)


@pytest.mark.parametrize(
    ("time_us", "text"),
    [
        (0.0, "0"),
        (0.1234, "123 ns"),
        (1.0, "1.00 µs"),
        (999.6, "1.00 ms"),
        (12345.0, "12.3 ms"),
        (2.5e6, "2.50 s"),
        (119e6, "119 s"),
        (150e6, "2.50 min"),
        (9000e6, "2.50 h"),
        (845429e6, "9.79 days"),
        (-1500.0, "-1.50 ms"),
    ],
)
def test_times_have_three_digits(time_us, text):
    assert format_time(time_us) == text


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [(8, "8 B"), (4096, "4 KiB"), (16777212, "16 MiB"), (5_000_000, "4.77 MiB"), (1000, "1000 B")],
)
def test_sizes_are_in_binary_units(nbytes, text):
    assert format_size(nbytes) == text


def test_text_is_one_line_without_control_characters():
    assert plain("a\x00\n\tb \x1b[31m\ud800c") == "a b [31m c"
    assert plain("x" * 99, 10) == "x" * 9 + "…"
    assert sentence("allReduce\nof") == "AllReduce of"


def test_counts_have_their_plural():
    assert format_layout(1, 1) == "1 rank on 1 node"
    assert format_layout(4, 2) == "4 ranks on 2 nodes"
    assert format_batch(85.333333) == "85.3333"
    assert format_batch(64.0) == "64"


@pytest.mark.parametrize(("most", "unit"), [(2e6, "s"), (5e3, "ms"), (999.0, "µs"), (1e-9, "ns")])
def test_the_unit_fits_the_largest_time(most, unit):
    assert unit_of([0.0, most])[1] == unit
