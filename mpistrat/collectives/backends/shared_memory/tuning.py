"""Tuned settings of a machine: the sizes at which one algorithm replaces another.

``mpistrat bench tune`` finds the figures and writes them to a table (tuning_table.py):
those of shared memory on one machine, by kind of call and of dtype; on several those of the
messages between them. Without a table, built-in figures do.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, TypeAlias

from mpistrat import built_in_sizes

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = [
    "CALLS",
    "HALVES",
    "WIRE",
    "Sizes",
    "Tuning",
    "Tunings",
    "WireTuning",
    "as_shown",
    "checked_entry",
    "from_entry",
    "from_text",
    "to_text",
    "wire_from_entry",
]

CALLS = (
    *("allreduce", "reduce", "reduce_scatter", "bcast"),
    *("allgather", "gather", "scatter", "alltoall"),
)
"""Names of entries, in the order of MpistratKind from 1 on (kernels/include/mpistrat/calls.h)."""

_MOST = 1 << 62
_MOST_SHOWN = 40  # characters

HALVES = " of halves"
"""What the names of entries for float16 and bfloat16 end with."""

WIRE = "wire"
"""The name of the only entry for several nodes."""


@dataclass(frozen=True)
class Sizes:
    """Sizes in bytes; 0 is the built-in figure."""

    @classmethod
    def from_mapping(cls, entry: Mapping[str, Any]) -> Self:
        """Return the tuning of a table's entry.

        Raises
        ------
        ValueError
            It is no object, has other names, or something else than whole numbers.
        """
        names = [field.name for field in fields(cls)]
        for name, value in checked_entry(entry, names, "sizes").items():
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MOST:
                raise ValueError(
                    f"{name} is {as_shown(value)}; expected a whole number of bytes, at most 2^62"
                )
        return cls(**entry)


@dataclass(frozen=True)
class Tuning(Sizes):
    """Those of a kind of call in shared memory; 0 is the built-in one.

    The built-in ones are in kernels/shm/default_tuning.h.

    Attributes
    ----------
    chunk_bytes
        What of a long array is exchanged in one step.
    flat_bytes
        Up to so many bytes of all ranks together, every rank reduces everything in one step.
    whole_bytes
        Up to so many bytes, each of two ranks reduces all of a chunk instead of half of it.
    stream_bytes
        From so many bytes on, results are written past the caches.
    remote_bytes
        From so many bytes on, private arrays are read where they are, if the system allows it
        and results are not written past the caches. Where it is 0, ranks find out by themselves
        when reading is faster, and when slots written past the caches are
        (kernels/shm/movement_choice.h; of all-reduces reduction/algorithm_choice.h beside it).
    """

    chunk_bytes: int = 0
    flat_bytes: int = 0
    whole_bytes: int = 0
    stream_bytes: int = 0
    remote_bytes: int = 0


@dataclass(frozen=True)
class WireTuning(Sizes):
    """Those of the messages between nodes; 0 is the built-in one (mpistrat/built_in_sizes.py).

    Attributes
    ----------
    short_bytes
        Up to here one rank of a node carries a reduction over the wire; at most 16 KiB count.
    ring_bytes
        The shortest messages of a ring; an array that makes none of them goes in fewer steps.
    ring_most_bytes
        The longest ones; at most 4 MiB count.
    """

    short_bytes: int = 0
    ring_bytes: int = 0
    ring_most_bytes: int = 0

    @classmethod
    def from_mapping(cls, entry: Mapping[str, Any]) -> Self:
        """Return the tuning of a table's entry.

        Raises
        ------
        ValueError
            As for every tuning, or the longest messages are shorter than the shortest.
        """
        found = super().from_mapping(entry)
        all_of_it = found.filled()
        if all_of_it.ring_most_bytes < all_of_it.ring_bytes:
            raise ValueError(
                f"ring_most_bytes={all_of_it.ring_most_bytes}: expected no less than ring_bytes,"
                f" which is {all_of_it.ring_bytes}"
            )
        return found

    def filled(self) -> WireTuning:
        """Return it with the built-in figures where it has none."""
        return WireTuning(
            self.short_bytes or built_in_sizes.SHORT_BYTES,
            self.ring_bytes or built_in_sizes.RING_BYTES,
            self.ring_most_bytes or built_in_sizes.RING_MOST_BYTES,
        )


Tunings: TypeAlias = dict[str, Tuning]
"""By name; what has no entry has the built-in figures."""


def to_text(tunings: Mapping[str, Sizes]) -> str:
    """Return one line of text."""
    return json.dumps({name: asdict(tuning) for name, tuning in tunings.items()})


def as_shown(value: Any) -> str:
    """Return what stands for `value` in a table, the beginning of it at least."""
    text = json.dumps(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


def from_text(text: str) -> Tunings:
    """Return what `to_text` wrote, of one node."""
    return from_entry(json.loads(text))


def from_entry(entry: Any) -> Tunings:
    """Return what a table's entry for one node says; raise `ValueError` if it is none."""
    names = [name + kind for name in CALLS for kind in ("", HALVES)]
    parts = checked_entry(entry, names, "kinds of call")
    return {name: Tuning.from_mapping(part) for name, part in parts.items()}


def wire_from_entry(entry: Any) -> WireTuning:
    """Return what a table's entry for several nodes says; raise `ValueError` if it is none."""
    return WireTuning.from_mapping(checked_entry(entry, [WIRE], "kinds of call").get(WIRE, {}))


def checked_entry(entry: Any, names: Sequence[str], what: str) -> Mapping[str, Any]:
    """Return a table's entry if it is an object with some of `names`; else raise `ValueError`."""
    if not isinstance(entry, dict):
        raise ValueError(f"got {as_shown(entry)}; expected an object with {what}: {list(names)}")
    unknown = sorted(set(entry) - set(names))
    if unknown:
        raise ValueError(f"got {what} {unknown}; expected some of {list(names)}")
    return entry
