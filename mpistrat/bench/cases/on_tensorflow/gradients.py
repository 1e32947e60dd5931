"""The case ``gradients``: time the reduction of gradients inside a ``tf.function``."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from mpistrat import Communicator
from mpistrat.bench.harness.json_lines import write_lines
from mpistrat.bench.harness.resnet50_shapes import gradient_shapes
from mpistrat.bench.harness.timing import Plan, Timing, measure
from mpistrat.bench.options import Json
from mpistrat.bench.peers import parse_peers
from mpistrat.bench.peers.horovod import HorovodPeer
from mpistrat.bench.peers.tensorflow import TensorFlowPeer
from mpistrat.errors import MpistratError

__all__ = ["command"]

_EMPTY, _SMALL, _OURS = "no collective", "one of 1 KiB", "161 gradients"
_THEIRS = "161 gradients, MultiWorkerMirrored"
_HOROVOD = "161 gradients, Horovod"


def command(
    peers: Annotated[str, typer.Option(help="Of tensorflow and horovod.")] = "all",
    rounds: Annotated[int, typer.Option(min=1, help="Turns of each side.")] = 15,
    json: Json = None,
) -> None:
    """Time ResNet-50's 161 gradients (102 MB), and one of 1 KiB, against other libraries.

    That is TensorFlow's own strategy, and Horovod where it was built for TensorFlow.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    communicator = Communicator()
    console = Console(quiet=communicator.rank != 0, highlight=False)
    names = parse_peers(peers) if communicator.size > 1 else []
    small, large = _sides(communicator, names)
    timings = measure(small, communicator, Plan(4 * rounds, 50, 50))
    timings.update(measure(large, communicator, Plan(rounds, 1, 3)))
    if "horovod" in names:
        timings.update(_measure_horovod(communicator, rounds, console.print))
    console.print(_table(timings, communicator.size))
    over = timings[_SMALL].minus(timings[_EMPTY]).median_us
    console.print(f"One of 1 KiB takes {over:.0f} us more than none.\n")
    if json is not None and communicator.rank == 0:
        write_lines(json, [_record(*pair, communicator.size) for pair in timings.items()])
    communicator.close()


def _sides(
    communicator: Communicator, peers: list[str]
) -> tuple[dict[str, Callable[[], Any]], ...]:
    """Return the sides of one short gradient and of all; TensorFlow's own strategy comes first."""
    # First: TensorFlow's strategy configures the process, and has to be made before TensorFlow is
    # used.
    theirs = _theirs(communicator) if "tensorflow" in peers else {}
    import tensorflow as tf

    from mpistrat.tensorflow import MirroredStrategy

    strategy = MirroredStrategy()
    one, many = tf.ones([256]), [tf.ones(shape) for shape in gradient_shapes()]
    ours = _traced(tf, strategy, lambda value: _all_reduce(tf, value))
    none = _traced(tf, strategy, lambda value: value)
    short = {_EMPTY: lambda: none(one), _SMALL: lambda: ours(one)}
    long = {_OURS: lambda: ours(many), **theirs}
    for name, side in {**short, **long}.items():
        _check(name, tf.nest.flatten(side()), 1 if name == _EMPTY else communicator.size)
    return short, long


def _check(name: str, results: list[Any], want: int) -> None:
    found = {float(part) for tensor in results for part in (tensor.numpy().ravel()[[0, -1]])}
    if found != {float(want)}:
        raise MpistratError(f"{name}: {sorted(found)}, expected {want}")


def _theirs(communicator: Communicator) -> dict[str, Callable[[], Any]]:
    peer = TensorFlowPeer()
    peer.setup(communicator)
    import tensorflow as tf

    many = [tf.ones(shape) for shape in gradient_shapes()]
    reduce = _traced(tf, peer.strategy, lambda value: _all_reduce(tf, value))
    return {_THEIRS: lambda: reduce(many)}


def _measure_horovod(
    communicator: Communicator, rounds: int, say: Callable[[str], None]
) -> dict[str, Timing]:
    """Measure Horovod by itself: its threads poll all the time and would slow the others down."""
    peer = HorovodPeer(["tensorflow"])
    reasons = [why for why in communicator.allgather_object(peer.missing()) if why]
    if reasons:
        say(f"peer horovod: left out, {reasons[0]}")
        return {}
    peer.setup(communicator)
    import tensorflow as tf

    @tf.function  # type: ignore[untyped-decorator]
    def step(values: list[Any]) -> Any:
        return peer.summed([tensor + 0.0 for tensor in values])

    many = [tf.ones(shape) for shape in gradient_shapes()]
    _check(_HOROVOD, step(many), communicator.size)
    timings = measure({_HOROVOD: lambda: step(many)}, communicator, Plan(rounds, 1, 3))
    peer.teardown()
    return timings


def _all_reduce(tf: Any, value: Any) -> Any:
    return tf.distribute.get_replica_context().all_reduce("sum", value)


def _traced(tf: Any, strategy: Any, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function that computes values as a step does, and reduces them."""

    @tf.function  # type: ignore[untyped-decorator]
    def step(values: Any) -> Any:
        def replica(mine: Any) -> Any:
            # Computed in the step, as gradients are.
            return function(tf.nest.map_structure(lambda tensor: tensor + 0.0, mine))

        return strategy.run(replica, args=(values,))

    traced: Callable[[Any], Any] = step
    return traced


def _table(timings: Mapping[str, Timing], ranks: int) -> Table:
    table = Table("", title=f"inside a tf.function, {ranks} ranks", title_justify="left", box=None)
    table.header_style = table.title_style = "none"  # no escape codes: mpirun may write to a file
    for column in ("median us", "min us", "max us", "ours is faster"):
        table.add_column(column, justify="right")
    for name, timing in timings.items():
        is_peer = name in (_THEIRS, _HOROVOD)
        faster = f"{timings[_OURS].speedup(timing):.1f} times" if is_peer else ""
        figures = (timing.median_us, timing.min_us, timing.max_us)
        table.add_row(name, *(f"{value:.0f}" for value in figures), faster)
    return table


def _record(name: str, timing: Timing, ranks: int) -> dict[str, Any]:
    return {"case": "gradients", "side": name, "ranks": ranks, "time_us": timing.record()}
