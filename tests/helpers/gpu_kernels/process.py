"""Build a family of kernels for the host, and run its checks in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from gpu.pretend import kernels_on_host
from helpers.gpu_kernels.library import built

__all__ = ["checks_fail"]

_TESTS = Path(__file__).parents[2]


def checks_fail(
    family: str,
    mode: kernels_on_host.Mode = "plain",
    order: str = "numbered",
    *,
    are_all: bool = False,
    change: Callable[[str], str] = str,
    timeout_s: float = 120,
) -> str | None:
    """Return what the checks of a family find wrong, or None.

    Parameters
    ----------
    family, mode, are_all, change
        As for `built`.
    order
        In which the threads of a block take turns.
    timeout_s
        How long the checks may take: a kernel may wait for ever.
    """
    library = built(family, mode, are_all=are_all, change=change)
    command = [sys.executable, "-m", "helpers.gpu_kernels.program", str(library), family]
    path = os.pathsep.join([str(_TESTS.parent), str(_TESTS), os.environ.get("PYTHONPATH", "")])
    environment = {
        **kernels_on_host.environment(mode),
        "PYTHONPATH": path,
        "PRETEND_ORDER": order,
    }
    try:
        done = subprocess.run(
            [*command, *(["--all"] if are_all else [])],
            env=environment,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        return f"no end after {timeout_s} s: {error.stdout!r} {error.stderr!r}"
    if done.returncode == 0:
        return None
    return f"exit code {done.returncode}\n{done.stdout}\n{done.stderr[-6000:]}"
