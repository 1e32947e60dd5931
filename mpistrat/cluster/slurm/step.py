"""Read the variables of the Slurm job step that started this process, and find what lacks."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

__all__ = [
    "LOCAL_RANK_VARIABLE",
    "NODE_VARIABLE",
    "RANK_VARIABLE",
    "SIZE_VARIABLES",
    "identity",
    "is_inside",
    "is_task",
    "local_size",
    "missing",
    "values",
]

RANK_VARIABLE = "SLURM_PROCID"
LOCAL_RANK_VARIABLE = "SLURM_LOCALID"
NODE_VARIABLE = "SLURM_NODEID"
# The first is the step's. The second is the job's in a batch script, so it comes second.
SIZE_VARIABLES = ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")
_STEP = "SLURM_STEP_ID"
_RANKS_HERE = "SLURM_GTIDS"
# From here on, ids are of steps that hold no ranks: the shell of salloc, the batch script, ...
_FIRST_SPECIAL_STEP = 0xFFFFFFFA


def is_inside() -> bool:
    """Tell whether srun started this process, or one that started it, as a task. **Local.**"""
    return is_task(os.environ)


def is_task(environment: Mapping[str, str]) -> bool:
    """Tell whether these variables are those of a task of a step. **Local.**"""
    text = environment.get(_STEP)
    return text is not None and not (text.isdecimal() and int(text) >= _FIRST_SPECIAL_STEP)


def identity() -> dict[str, str]:
    """Return the variables that tell which task of which step this is; {} outside. **Local.**

    In an allocation, outside of a step, Slurm sets some as well, but has started no ranks.
    """
    names = (_STEP, RANK_VARIABLE)
    if not is_inside() or any(name not in os.environ for name in names):
        return {}
    return {name: os.environ[name] for name in names}


def local_size() -> tuple[str, int] | None:
    """Return (variable, number of the step's tasks on this node), or None. **Local.**"""
    ranks = os.environ.get(_RANKS_HERE, "")
    return (_RANKS_HERE, len(ranks.split(","))) if ranks else None


def missing() -> list[str]:
    """Return the variables of a step that are not set, or no number, in one. **Local.**

    srun sets all of them; a script that changes some by hand leaves the others.
    """
    if not is_inside():
        return []
    needed = (RANK_VARIABLE, LOCAL_RANK_VARIABLE, NODE_VARIABLE)
    wrong = [name for name in needed if not _is_number(name)]
    return wrong if any(map(_is_number, SIZE_VARIABLES)) else [*wrong, SIZE_VARIABLES[0]]


def values(names: Iterable[str]) -> str:
    """Return variables with their values for a message: ``no SLURM_PROCID``. **Local.**"""
    found = ((name, os.environ.get(name)) for name in names)
    return ", ".join(f"no {name}" if text is None else f"{name}={text!r}" for name, text in found)


def _is_number(name: str) -> bool:
    return os.environ.get(name, "").isdecimal()
