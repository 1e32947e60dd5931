"""Let one suite at a time write to a result file, and remove what a killed one left behind."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from mpistrat.bench.scaling.one_run import folder_prefix
from mpistrat.errors import UsageError
from mpistrat.system.files.file_locks import try_to_lock

__all__ = ["alone_with"]


@contextlib.contextmanager
def alone_with(output: Path) -> Iterator[None]:
    """Keep others from a result file in the block; where the file system has no locks, nobody.

    Raises
    ------
    UsageError
        Another suite writes to the file.
    """
    with output.open("a", encoding="utf-8") as file:
        is_empty = output.stat().st_size == 0
        try:
            if not try_to_lock(file, 0.0, 0.0):
                raise UsageError(
                    f"--output {output}: another suite writes to it; give another name"
                )
            for folder in output.parent.glob(f"{folder_prefix(output)}*"):
                shutil.rmtree(folder, ignore_errors=True)  # of a suite that was killed
        except OSError:
            pass  # no locks here: two suites could write at once, and each keeps its folders
        try:
            yield
        finally:
            if is_empty and output.stat().st_size == 0:
                output.unlink()
