"""The case ``horovod``: time Horovod's all-reduce through this package against Horovod's own."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from mpistrat import Communicator
from mpistrat.bench.harness.json_lines import write_lines
from mpistrat.bench.harness.timing import Plan, Timing, measure
from mpistrat.bench.options import Json
from mpistrat.errors import MpistratError

__all__ = ["command"]

_SIZES = {"1 KiB": 1 << 10, "1 MiB": 1 << 20, "64 MiB": 64 << 20}
_MODES = ("eager", "tf.function")
_OURS, _DIRECT = "mpistrat over Horovod", "Horovod"


def command(
    rounds: Annotated[int, typer.Option(min=1, help="Turns of each side.")] = 9,
    json: Json = None,
) -> None:
    """Time all-reduces of float32 by Horovod, called directly and by a strategy, in turn."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    from mpistrat.tensorflow import HorovodAllReduce, MirroredStrategy

    strategy = MirroredStrategy(cross_device_ops=HorovodAllReduce())
    communicator = strategy.communicator
    console = Console(quiet=communicator.rank != 0, highlight=False)
    table = Table("", "", title=f"{communicator.size} ranks", title_justify="left", box=None)
    table.header_style = table.title_style = "none"  # no escape codes: mpirun may write to a file
    for column in (f"{_OURS}, us", f"{_DIRECT}, us", "ratio"):
        table.add_column(column, justify="right")
    records = []
    for mode in _MODES:
        for name, nbytes in _SIZES.items():
            timings = _measure(strategy, mode, nbytes, rounds)
            records += [_record(mode, nbytes, *one, communicator) for one in timings.items()]
            table.add_row(mode, name, *_figures(timings))
    console.print(table)
    if json is not None and communicator.rank == 0:
        write_lines(json, records)
    strategy.close()


def _measure(strategy: Any, mode: str, nbytes: int, rounds: int) -> dict[str, Timing]:
    import horovod.tensorflow as hvd
    import tensorflow as tf

    tensor = tf.ones([nbytes // 4])
    size = strategy.communicator.size

    def ours(value: Any) -> Any:
        return strategy.reduce("SUM", value, axis=None)

    def direct(value: Any) -> Any:
        return hvd.allreduce(value, op=hvd.Sum, name="direct")

    sides: dict[str, Callable[[], Any]] = {}
    for name, call in ((_OURS, ours), (_DIRECT, direct)):
        traced = tf.function(call) if mode == "tf.function" else call
        if float(traced(tensor)[0]) != size:
            raise MpistratError(f"{name}, {mode}: a sum is wrong")
        sides[name] = lambda traced=traced: traced(tensor)  # type: ignore[misc]
    calls = 3 if nbytes > _SIZES["1 MiB"] else 20
    return measure(sides, strategy.communicator, Plan(rounds, calls, 3))


def _figures(timings: Mapping[str, Timing]) -> list[str]:
    ours, direct = timings[_OURS], timings[_DIRECT]
    medians = (ours.median_us, direct.median_us)
    return [*(f"{us:.0f}" for us in medians), f"{1 / ours.speedup(direct):.3f}"]


def _record(
    mode: str, nbytes: int, side: str, timing: Timing, communicator: Communicator
) -> dict[str, Any]:
    what = {"case": "horovod", "mode": mode, "bytes": nbytes, "side": side}
    return {**what, "ranks": communicator.size, "time_us": timing.record()}
