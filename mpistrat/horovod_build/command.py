"""The command ``mpistrat horovod``: build Horovod for this environment, or say what is here."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from mpistrat.cluster.launcher.launch_variables import expected_size
from mpistrat.errors import BackendUnavailableError, MpistratError, UsageError
from mpistrat.horovod_build.compiling import build_wheel
from mpistrat.horovod_build.installing import install, installed_from
from mpistrat.horovod_build.progress_line import ProgressLine
from mpistrat.horovod_build.report import print_report
from mpistrat.horovod_build.requirements.examination import Toolchain, examine
from mpistrat.horovod_build.termination import exit_at_termination
from mpistrat.horovod_build.trial import try_on_two_ranks
from mpistrat.horovod_build.wheel_cache import CachedWheel, cached_wheel

__all__ = ["app"]

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)

_FAILED, _WRONG_USE, _INTERRUPTED = 1, 2, 130
_TRIAL_S = 180.0
_Cuda = Annotated[
    bool, typer.Option("--cuda", help="For NVIDIA's GPUs: its collectives go through NCCL.")
]


@app.callback()
def _horovod() -> None:
    """Build Horovod, which PyPI has as sources only, for this Python, TensorFlow and MPI."""


@app.command()
def build(
    cuda: _Cuda = False,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Compile it also if its wheel is in the cache.")
    ] = False,
    wheel_only: Annotated[
        bool,
        typer.Option("--wheel-only", help="Print the path of the wheel, and install nothing."),
    ] = False,
    timeout: Annotated[
        float, typer.Option(min=1, help="Seconds after which the compilation is given up.")
    ] = 3600.0,
) -> None:
    """Compile Horovod, install it into this environment, and test it on 2 ranks.

    The wheel is kept in the cache folder: a second environment that has the same Python,
    TensorFlow and MPI gets it from there.
    """
    with _told_to_the_user(), exit_at_termination(), ProgressLine() as line:
        _refuse_jobs()
        line.step("looking for compilers and libraries")
        toolchain = examine(cuda=cuda).require()
        place = cached_wheel(toolchain)
        with place.locked(timeout):
            wheel = _wheel(toolchain, place, line, None if rebuild else place.find(), timeout)
            if not wheel_only:
                _install(wheel, place, line, timeout)
        said = str(wheel) if wheel_only else _try(line)
    # Not before: the line takes what is printed meanwhile to standard error.
    print(said)


@app.command()
def check(cuda: _Cuda = False) -> None:
    """Print what a build needs, and what of it is here; exit with 1 if something is missing."""
    with _told_to_the_user():
        here = examine(cuda=cuda)
        place = cached_wheel(here.toolchain) if here.toolchain else None
        print_report(here.rows, place, installed_from())
        if here.toolchain is None:
            raise typer.Exit(_FAILED)


def _wheel(
    toolchain: Toolchain,
    place: CachedWheel,
    line: ProgressLine,
    found: Path | None,
    timeout_s: float,
) -> Path:
    if found is None:
        return build_wheel(toolchain, place, timeout_s, line)
    line.step(f"its wheel is in the cache: {found}")
    return found


def _install(wheel: Path, place: CachedWheel, line: ProgressLine, timeout_s: float) -> None:
    before = installed_from()
    if before not in {None, wheel.as_uri()}:
        line.step(f"replacing the Horovod that is installed, from {before or 'an index'}")
    line.step(f"installing {wheel.name}")
    install(wheel, place.log, timeout_s)


def _try(line: ProgressLine) -> str:
    line.step("testing it on 2 ranks")
    tried = try_on_two_ranks(_TRIAL_S)
    return (
        f"Horovod is installed; {tried}\n"
        "use it by cross_device_ops=mpistrat.tensorflow.HorovodAllReduce()"
    )


def _refuse_jobs() -> None:
    """Refuse to build as a rank of a job: ranks would install into one environment at a time."""
    expected = expected_size()
    if expected is not None and expected[1] > 1:
        raise UsageError(
            f"this is one of {expected[1]} ranks ({expected[0]}); run it once, without mpirun or"
            " srun, where the packages of a cluster are installed"
        )


@contextmanager
def _told_to_the_user() -> Iterator[None]:
    """Make an error a message without a traceback, and the exit code 1, or 2 for wrong use."""
    try:
        yield
    except MpistratError as error:
        print(f"mpistrat horovod: {error}", file=sys.stderr)
        code = _FAILED if isinstance(error, BackendUnavailableError) else _WRONG_USE
        raise typer.Exit(code) from None
    except KeyboardInterrupt:
        print("mpistrat horovod: interrupted", file=sys.stderr)
        raise typer.Exit(_INTERRUPTED) from None
