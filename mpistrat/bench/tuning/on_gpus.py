"""Search the fastest settings of arrays on GPUs, for the case ``tune``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from rich.console import Console

from mpistrat import Communicator, built_in_sizes
from mpistrat.bench.tuning.comparison import Bench, Trial
from mpistrat.collectives.arrays import gpu_devices, on_device
from mpistrat.collectives.backends.gpu.facts import facts
from mpistrat.collectives.backends.gpu.tuning import GPU, GpuTuning, from_entry, gpu_key
from mpistrat.errors import BackendUnavailableError

__all__ = ["GpuSearch", "gpu_of_rank"]

_KIB, _MIB = 1 << 10, 1 << 20
_ONE_SHOT = tuple(2**power * _KIB for power in range(4, 13))
_WHOLE = tuple(2**power * _KIB for power in range(4, 14))
_BUFFERS = tuple(2**power * _MIB for power in range(7))
_WINDOWS = 4  # of the longer of two sizes, to compare them


def gpu_of_rank(communicator: Communicator) -> int | None:
    """Return this rank's GPU if all ranks have one; None if any has none. **Collective.**

    A rank takes the one of its number on the node, in turn if there are fewer.
    """
    try:
        count = gpu_devices.count()
    except BackendUnavailableError:
        count = 0
    if not communicator.allreduce(np.array(count), "min"):
        return None
    return communicator.topology.local_rank % count


class GpuSearch:
    """Search the sizes for these GPUs and this number of ranks, by float32 all-reduces.

    What cannot carry arrays here is not measured, and keeps its built-in sizes.
    """

    names: tuple[str, ...] = (GPU,)

    def __init__(
        self, communicator: Communicator, device: int, console: Console, rounds: int
    ) -> None:
        self._device, self._console, self._rounds = device, console, rounds
        self.key = gpu_key(communicator.allgather_object(facts(device)))

    def parsed(self, entry: Any) -> dict[str, GpuTuning]:
        """Return the tunings of a table's entry; raise `ValueError` if it is none."""
        return {GPU: from_entry(entry)}

    def best(self, _name: str) -> GpuTuning:
        """Measure, and return the fastest tuning. **Collective.**"""
        found = {}
        with self._trial("nccl", "has_one_shot") as trial:
            if trial is not None:
                found["one_shot_bytes"] = trial.last(GpuTuning(), "one_shot_bytes", _ONE_SHOT)
        with self._trial("peer_memory") as trial:
            if trial is not None:
                found["whole_bytes"] = trial.last(GpuTuning(), "whole_bytes", _WHOLE)
                found["buffer_bytes"] = self._buffer(trial)
        if "buffer_bytes" not in found:
            with self._trial("staged") as trial:
                if trial is not None:
                    found["buffer_bytes"] = self._buffer(trial)
        return GpuTuning(**found)

    def _buffer(self, trial: Trial[GpuTuning]) -> int:
        middle = replace(GpuTuning(), buffer_bytes=_BUFFERS[len(_BUFFERS) // 2])
        best = trial.stepwise(
            middle, "buffer_bytes", _BUFFERS, lambda old, new: _WINDOWS * max(old, new)
        )
        return best.buffer_bytes

    @contextmanager
    def _trial(self, carrier: str, needs: str = "") -> Iterator[Trial[GpuTuning] | None]:
        """Yield what compares tunings of a carrier, or None if it cannot carry here."""
        with _opened_with(carrier), gpu_devices.on_gpu(self._device), Communicator() as own:
            backend = None
            try:
                own.allreduce(on_device.placed(np.ones(1, np.float32)))
                backend = own.gpu_backend
            except BackendUnavailableError as error:
                self._console.print(f"{carrier}: not measured: {error}")
            if backend is None or (needs and not getattr(backend, needs)):
                yield None
            else:
                bench = Bench(own, self._console, self._rounds)
                yield Trial(bench, backend.tune, "allreduce", place=on_device.placed)


@contextmanager
def _opened_with(carrier: str) -> Iterator[None]:
    """Let communicators open one carrier, with room for the largest sizes, and no table."""
    variables = {"MPISTRAT_GPU_CARRIER": carrier, "MPISTRAT_TUNING": os.devnull + "/none"}
    sizes = {
        "GPU_BUFFER_BYTES": _BUFFERS[-1],
        "GPU_MAPPED_BYTES": _BUFFERS[-1],
        "GPU_ONE_SHOT_BYTES": _ONE_SHOT[-1],
        "GPU_ONE_SHOT_BYTES_OF_FEW": _ONE_SHOT[-1],
    }
    before = {name: os.environ.get(name) for name in variables}
    sizes_before = {name: getattr(built_in_sizes, name) for name in sizes}
    os.environ.update(variables)
    vars(built_in_sizes).update(sizes)
    try:
        yield
    finally:
        vars(built_in_sizes).update(sizes_before)
        for name, value in before.items():
            if value is None:
                os.environ.pop(name)
            else:
                os.environ[name] = value
