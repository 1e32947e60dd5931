"""The demo's command line: parse its options, train, report."""

from __future__ import annotations

from typing import Annotated

import typer
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

import mpistrat
from mpistrat.demo.digits import load
from mpistrat.demo.report import Report
from mpistrat.demo.same_bits import digests, outliers
from mpistrat.demo.timed_all_reduce import TimedAllReduce
from mpistrat.demo.train import Epoch, Options, Trainer

__all__ = ["app"]

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def train(
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the training images.")] = 20,
    batch_size: Annotated[int, typer.Option(min=1, help="Images in a global batch.")] = 64,
    learning_rate: Annotated[float, typer.Option(help="Of the first epoch; it decays.")] = 0.2,
    seed: Annotated[int, typer.Option(min=0, help="Of weights and of the order.")] = 0,
    devices: Annotated[int, typer.Option(min=1, help="Local replicas on each rank.")] = 1,
    live: Annotated[
        bool | None,
        typer.Option(
            "--live/--lines",
            help="Redraw one bar, or write lines. Default: lines under mpirun, which hides where"
            " its output goes; else a bar if that is a terminal.",
        ),
    ] = None,
) -> None:
    """Train a small network on handwritten digits, on every rank that runs this."""
    timer = TimedAllReduce()
    strategy = mpistrat.MirroredStrategy(
        [f"CPU:{index}" for index in range(devices)], cross_device_ops=timer
    )
    communicator = strategy.communicator
    digits = load()
    # Every rank's BLAS would start a thread for each core, and they would wait for each other;
    # matrices as small as these gain nothing from several.
    threadpool_limits(1)
    trainer = Trainer(strategy, digits, Options(epochs, batch_size, learning_rate, seed), timer)
    with Report(communicator.rank == 0, epochs, trainer.steps, live) as report:
        report.begin(strategy, digits, batch_size)
        done = []
        for number in range(1, epochs + 1):
            done.append(trainer.run_epoch(number, report.step))
            report.epoch(done[-1], _share(strategy, done[-1:]))
        report.end(done, _share(strategy, done))
        hashes = digests(strategy, trainer.variables)
        if others := outliers(hashes):
            report.other_bits(hashes, others)
            raise typer.Exit(1)
        report.same_bits(hashes)


def _share(strategy: mpistrat.Strategy, epochs: list[Epoch]) -> float:
    """Return the part of the time spent communicating, the mean over all ranks."""
    communication_s = sum(epoch.communication_s for epoch in epochs)
    share = communication_s / sum(epoch.duration_s for epoch in epochs)
    return float(strategy.reduce("MEAN", share))
