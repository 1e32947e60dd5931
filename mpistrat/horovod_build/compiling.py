"""Build the wheel: fetch the tools of the build, compile Horovod's sources, keep the result."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path

from mpistrat.errors import BackendUnavailableError
from mpistrat.horovod_build.compatibility_headers import write_compatibility_headers
from mpistrat.horovod_build.logged_commands import run_logged
from mpistrat.horovod_build.pip_command import pip
from mpistrat.horovod_build.progress_line import ProgressLine
from mpistrat.horovod_build.recipe import (
    BUILD_PACKAGES,
    HOROVOD,
    SHA256,
    environment,
)
from mpistrat.horovod_build.requirements.examination import Toolchain
from mpistrat.horovod_build.wheel_cache import CachedWheel

__all__ = ["build_wheel"]

_PREFIX, _OLD_S = "build-", 24 * 3600.0
_FOR_DOWNLOADS = (
    "PyPI has to be within reach, as from the login node of a cluster, or the packages in a folder"
    " that PIP_FIND_LINKS names"
)
_FOR_COMPILATION = (
    "if it could not be downloaded, see to PyPI or PIP_FIND_LINKS; if a compiler failed, take"
    " another one by CXX, GCC 12 is tested"
)
_CMAKE = "cmake>=3.18,<4"
# pip's own cache tells wheels for two MPI libraries not apart.
_OPTIONS = (
    "--verbose",
    "--no-build-isolation",
    "--no-deps",
    "--no-cache-dir",
    "--no-binary=:all:",
)


def build_wheel(
    toolchain: Toolchain, place: CachedWheel, timeout_s: float, line: ProgressLine
) -> Path:
    """Compile Horovod and return the wheel in the cache. **Local.** It takes some minutes.

    The running environment is used and not changed. What pip says is in the log of `place`.

    Raises
    ------
    BackendUnavailableError
        A package cannot be had, the compilation fails, or it all takes longer than `timeout_s`.
    """
    deadline = time.monotonic() + timeout_s
    place.log.write_bytes(b"")
    _remove_leftovers(place.folder)
    # Beside the wheel, which can then be renamed; /tmp may be small, or hold no programs.
    with tempfile.TemporaryDirectory(dir=place.folder, prefix=_PREFIX) as name:
        folder = Path(name)
        line.step("fetching what the build needs")
        _fetch_tools(toolchain, folder / "tools", place.log, timeout_s)
        write_compatibility_headers(folder / "headers")
        line.step(f"compiling Horovod {HOROVOD}")
        sources = folder / "requirements.txt"
        sources.write_text(f"horovod=={HOROVOD} --hash=sha256:{SHA256}\n", encoding="utf-8")
        run_logged(
            pip("wheel", *_OPTIONS, "--wheel-dir", str(folder), "-r", str(sources)),
            place.log,
            max(deadline - time.monotonic(), 0.0),
            _FOR_COMPILATION,
            env=environment(toolchain, folder / "headers", folder / "tools"),
            follow=line.follow,
        )
        built = next(folder.glob("horovod-*.whl"), None)
        if built is None:
            raise BackendUnavailableError(f"pip made no wheel; its log is {place.log}")
        return place.keep(built)


def _remove_leftovers(folder: Path) -> None:
    """Remove what builds left that were killed; by age, as not all file systems have locks."""
    for left in folder.glob(f"{_PREFIX}*"):
        if time.time() - left.stat().st_mtime > _OLD_S:
            shutil.rmtree(left, ignore_errors=True)


def _fetch_tools(toolchain: Toolchain, folder: Path, log: Path, timeout_s: float) -> None:
    packages = [*BUILD_PACKAGES, *([] if toolchain.cmake.program else [_CMAKE])]
    command = pip("install", "--target", str(folder), *packages)
    run_logged(command, log, timeout_s, _FOR_DOWNLOADS)
