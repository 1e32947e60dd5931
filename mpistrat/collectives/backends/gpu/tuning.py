"""Tuned settings of arrays on GPUs: the sizes at which one way gives way to another.

``mpistrat bench tune`` writes them to the same table as the host's, by the model of the GPUs and
how many ranks and nodes have them. Without an entry, built-in figures do.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mpistrat import built_in_sizes
from mpistrat.collectives.arrays import gpu_devices
from mpistrat.collectives.backends.base import Backend, Steps
from mpistrat.collectives.backends.gpu.facts import Facts
from mpistrat.collectives.backends.shared_memory import tuning_table
from mpistrat.collectives.backends.shared_memory.tuning import Sizes, checked_entry, to_text

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["GPU", "GpuTuning", "agreed", "from_entry", "gpu_key"]

GPU = "gpu"
"""The name of the only entry of a kind of GPUs."""

_FEW, _MOST_WHOLE = 4, 3  # ranks
_NO_LIMIT = 1 << 62
_BUFFERS_OF_A_GPU = 2048  # of which each rank on it takes four
_LEAST_BUFFER, _MOST_BYTES = 4 << 10, 1 << 30
_TEXT_BYTES = 256


@dataclass(frozen=True)
class GpuTuning(Sizes):
    """Those of arrays on GPUs; 0 is the built-in one.

    Attributes
    ----------
    one_shot_bytes
        Up to so many bytes one kernel all-reduces, where NCCL carries longer arrays (one_shot.py).
    whole_bytes
        Up to so many bytes each rank reduces all of an array that goes through mapped memory;
        above, a slice, which moves fewer bytes and takes one more barrier (peer_memory.py).
    buffer_bytes
        Size of each buffer that windows of long arrays are copied to, on the host and, if
        `mapped_bytes` says nothing else, on GPUs; from 4 KiB to 1 GiB.
    mapped_bytes
        Size of each buffer in mapped memory of GPUs; from 4 KiB to 1 GiB.
    """

    one_shot_bytes: int = 0
    whole_bytes: int = 0
    buffer_bytes: int = 0
    mapped_bytes: int = 0

    @classmethod
    def from_mapping(cls, entry: Mapping[str, Any]) -> Self:
        """Return the tuning of a table's entry.

        Raises
        ------
        ValueError
            As for every tuning, or GPUs have no memory for buffers of that size.
        """
        found = super().from_mapping(entry)
        for name in ("one_shot_bytes", "buffer_bytes", "mapped_bytes"):
            if getattr(found, name) > _MOST_BYTES:
                raise ValueError(f"{name}={getattr(found, name)}: expected at most 1 GiB")
        for name in ("buffer_bytes", "mapped_bytes"):
            if 0 < getattr(found, name) < _LEAST_BUFFER:
                raise ValueError(f"{name}={getattr(found, name)}: expected at least 4 KiB")
        return found

    def filled(self, num_ranks: int, gpu_bytes: int = 0) -> GpuTuning:
        """Return it with the built-in figures where it has none.

        Parameters
        ----------
        num_ranks
            Of the communicator.
        gpu_bytes
            All memory of a GPU; 0 if that is not known.
        """
        few = built_in_sizes.GPU_ONE_SHOT_BYTES_OF_FEW
        one_shot_bytes = few if num_ranks <= _FEW else built_in_sizes.GPU_ONE_SHOT_BYTES
        # Three ranks read as many bytes in slices as whole, and meet less.
        whole_bytes = _NO_LIMIT if num_ranks <= _MOST_WHOLE else 1
        return GpuTuning(
            self.one_shot_bytes or one_shot_bytes,
            self.whole_bytes or whole_bytes,
            self.buffer_bytes or built_in_sizes.GPU_BUFFER_BYTES,
            self.mapped_bytes or self.buffer_bytes or _mapped_bytes(gpu_bytes),
        )


def _mapped_bytes(gpu_bytes: int) -> int:
    """Return what long arrays need for few windows, and a GPU hardly misses."""
    if not gpu_bytes:
        return built_in_sizes.GPU_MAPPED_BYTES
    spared = 1 << max(0, (gpu_bytes // _BUFFERS_OF_A_GPU).bit_length() - 1)
    return min(built_in_sizes.GPU_MAPPED_BYTES, max(spared, built_in_sizes.GPU_BUFFER_BYTES))


def gpu_key(everyone: Sequence[Facts]) -> str:
    """Return the name of the entry for ranks with these facts."""
    gpus = len({(one.host, one.bus) for one in everyone})
    nodes = len({one.host for one in everyone})
    where = f"{gpus} GPUs" + (f" of {nodes} nodes" if nodes > 1 else "")
    return f"{everyone[0].model}, {len(everyone)} ranks on {where}"


def from_entry(entry: Any) -> GpuTuning:
    """Return what a table's entry for GPUs says; raise `ValueError` if it is none."""
    return GpuTuning.from_mapping(checked_entry(entry, [GPU], "kinds of call").get(GPU, {}))


def agreed(host: Backend, everyone: Sequence[Facts]) -> Steps:
    """Return what rank 0's table says for these ranks, no figure left open. **Collective.**"""
    word = np.zeros(_TEXT_BYTES, np.uint8)
    if host.rank == 0:
        gpu_bytes = gpu_devices.memory_bytes()
        found = tuning_table.find(gpu_key(everyone), from_entry).filled(host.size, gpu_bytes)
        text = to_text({GPU: found}).encode()
        word[: len(text)] = np.frombuffer(text, np.uint8)
    yield from host.bcast(word, 0)
    return GpuTuning(**json.loads(word.tobytes().rstrip(b"\0"))[GPU])
