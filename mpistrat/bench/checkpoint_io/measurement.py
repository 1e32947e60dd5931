"""Check, and then time, saves and restores of a checkpoint and of a plain file in turn."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np

from mpistrat import Communicator
from mpistrat.bench.checkpoint_io.plain_file import PlainFile
from mpistrat.bench.checkpoint_io.saved_variables import SavedVariables
from mpistrat.bench.harness.timing import Timing

__all__ = ["OURS", "PLAIN", "Measurement"]

OURS, PLAIN = "checkpoint", "np.save and fsync by rank 0"
_MIN_ROUNDS = 3


class Measurement:
    """What is saved, where, and how long each call takes. **Collective** to use."""

    def __init__(
        self, variables: SavedVariables, folder: Path, communicator: Communicator
    ) -> None:
        self._variables, self._communicator = variables, communicator
        self._path = folder / "checkpoint"
        is_first = communicator.rank == 0
        self._file = PlainFile(folder / "array.npy", variables.nbytes, is_first)

    def why_wrong(self) -> str | None:
        """Save and restore once; return what is wrong, the same on all ranks."""
        self._variables.save(self._path)
        self._variables.forget()
        self._variables.restore(self._path)
        self._file.save()
        self._file.restore()
        answers = {OURS: self._variables.are_right(), PLAIN: self._file.is_right()}
        self._delete()
        wrong = [
            f"{name}: what rank {rank} restored is not what was saved"
            for rank, one in enumerate(self._communicator.allgather_object(answers))
            for name, is_right in one.items()
            if not is_right
        ]
        return wrong[0] if wrong else None

    def times(self, rounds: int, seconds: float) -> dict[tuple[str, str], Timing]:
        """Return the times of the slowest rank, by side and op (``save``, ``restore``).

        There are as many rounds as fit into the time, but 3 at least unless fewer are asked for.
        """
        mine = []
        start = time.monotonic()
        for _ in self._rounds(rounds, seconds, start):
            mine.append({key: self._seconds(call) for key, call in self._calls().items()})
            self._delete()
        return _slowest(mine, self._communicator)

    def _calls(self) -> Mapping[tuple[str, str], Callable[[], None]]:
        return {
            (OURS, "save"): lambda: self._variables.save(self._path),
            (PLAIN, "save"): self._file.save,
            (OURS, "restore"): lambda: self._variables.restore(self._path),
            (PLAIN, "restore"): self._file.restore,
        }

    def _rounds(self, rounds: int, seconds: float, start: float) -> Iterator[int]:
        for index in range(rounds):
            is_over = np.array(time.monotonic() - start > seconds)
            if index >= _MIN_ROUNDS and bool(self._communicator.allreduce(is_over, "or")):
                return
            yield index

    def _seconds(self, call: Callable[[], None]) -> float:
        self._communicator.barrier()
        start = time.perf_counter()
        call()
        return time.perf_counter() - start

    def _delete(self) -> None:
        """Delete both, so that each save writes new files; nobody may read them any more."""
        self._communicator.barrier()
        self._file.delete()
        if self._communicator.rank == 0:
            shutil.rmtree(self._path)
        self._communicator.barrier()


def _slowest(
    mine: list[dict[tuple[str, str], float]], communicator: Communicator
) -> dict[tuple[str, str], Timing]:
    times = np.array([list(one.values()) for one in mine])
    slowest_us = communicator.allreduce(times, "max") * 1e6
    return {key: Timing(tuple(slowest_us[:, i].tolist())) for i, key in enumerate(mine[0])}
