"""Let torch do the same on the same memory, where it is installed and uses the same GPU."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeAlias

from mpistrat.bench.gpu.comparison import Side
from mpistrat.bench.peers.base import load, why_not
from mpistrat.errors import BackendUnavailableError

__all__ = ["tensors", "torch_sides", "why_no_torch"]

Make: TypeAlias = Callable[[Any], Callable[[], object]]
"""Makes a call, given the module torch."""


@cache
def why_no_torch() -> str | None:
    """Return why torch cannot be compared with, or None if it can. **Local.**"""
    if why := why_not("torch"):
        return why
    import cupy

    torch = load("torch")
    if not torch.cuda.is_available():
        return "torch finds no GPU"
    if bool(torch.version.hip) != bool(cupy.cuda.runtime.is_hip):
        return "torch and CuPy are for GPUs of different vendors"
    return None


def torch_sides(make: Make, launches: int = 1) -> list[Side]:
    """Return torch's side of a row, or no side where torch cannot be used.

    Its call is made when it is first called: what fails there is told like what fails in it.
    """
    if why_no_torch():
        return []
    made: list[Callable[[], object]] = []

    def call() -> object:
        if not made:
            made.append(make(load("torch")))
        return made[0]()

    return [Side("torch", "torch", call, launches)]


def tensors(arrays: list[Any]) -> list[Any]:
    """Return tensors over the memory of arrays of CuPy.

    Raises
    ------
    BackendUnavailableError
        torch would queue its work on another stream than CuPy: neither its order nor its time
        would be known.
    """
    import cupy

    torch = load("torch")
    theirs, ours = torch.cuda.current_stream().cuda_stream, cupy.cuda.get_current_stream().ptr
    if int(theirs) != int(ours):
        raise BackendUnavailableError(
            f"torch's current stream is {theirs:#x}, and CuPy's {ours:#x}; expected the same"
        )
    return [torch.from_dlpack(one) for one in arrays]
