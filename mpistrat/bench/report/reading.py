"""How to read a report: what its words and marks mean."""

from __future__ import annotations

__all__ = ["HOW_TO_READ"]

_INTERVALS = (
    "Intervals are of the median, from order statistics (no distribution is assumed), and"
    " each says what it is. 95 %: it contains the median with that probability at least."
    " Range: the least to the most of the values, where there are fewer than 6, or their"
    " number is unknown. 95 % in each of 2 runs: it reaches over the intervals of both runs."
    " From 6 runs on it is a 95 % interval of their medians."
)
_REPEATS = (
    "Of repeats, each figure is of all of them: times are medians of the runs' medians;"
    " bandwidths, ratios and efficiencies are of those times. By run means the range of the"
    " ratios of the runs."
)
_TERMS = (
    "Times are those of the slowest rank. Bus bandwidth is that of nccl-tests: bytes over time,"
    " times 2(n-1)/n for allreduce, (n-1)/n for reduce_scatter, allgather, gather, scatter and"
    " alltoall, and 1 for the others, on n ranks. The side memcpy is a copy of the same bytes by"
    " each rank at the same time: about the least that an all-reduce can take. A side"
    " named auto is what mpistrat chose by itself, with its choice in brackets."
)
_READING = (
    "Each series has a colour, a marker or hatch, and a line style of its own, so that figures can"
    " be read in black and white. The numbers of each figure are in the table below it."
)

HOW_TO_READ = (_TERMS, _INTERVALS, _REPEATS, _READING)
"""Statements at the end of the page."""
