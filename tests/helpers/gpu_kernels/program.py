"""Run the checks of one family of kernels: ``python -m helpers.gpu_kernels.program``.

A process of its own, since sanitizers have to be loaded first and a fault ends the process.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from helpers.gpu_kernels import movement, one_shot, reductions, row_order, rows, updates
from helpers.gpu_kernels.library import Library

__all__ = ["CHECKS"]

CHECKS: dict[str, list[Callable[..., None]]] = {
    "slice_reduce": [reductions.check_slices],
    "one_shot": [one_shot.check_rounds, one_shot.check_missing_rank],
    "pieces": [movement.check_packed, movement.check_joined],
    "cast": [movement.check_casts],
    "updates": [updates.check_updates],
    "scatter_add": [rows.check_rows, rows.check_bad_indices],
    "row_order": [row_order.check_few, row_order.check_many],
}
"""The checks of each family, which is a file in kernels/cuda."""


def _main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("library", type=Path)
    parser.add_argument("family", choices=CHECKS)
    parser.add_argument("--all", action="store_true", help="all operations, dtypes and sizes")
    given = parser.parse_args()
    library = Library(given.library)
    for one in CHECKS[given.family]:
        one(library, are_all=given.all)


if __name__ == "__main__":
    _main()
