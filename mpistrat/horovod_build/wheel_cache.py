"""Keep the wheels that were built, each in a folder named after all that it depends on."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mpistrat import config
from mpistrat.errors import BackendUnavailableError
from mpistrat.horovod_build.recipe import HOROVOD, RECIPE, target_options
from mpistrat.horovod_build.requirements.examination import Toolchain
from mpistrat.system.compile_on_demand import own_folder
from mpistrat.system.files.atomic_files import replace_whole
from mpistrat.system.files.file_locks import try_to_lock

__all__ = ["CachedWheel", "cached_wheel", "made_for"]

_NAP_S = 0.5


def made_for(toolchain: Toolchain) -> dict[str, str]:
    """Return all that a wheel depends on, by name. **Local.**

    The MPI library counts by its version and the name of its file, which carries the number of its
    binary interface (``libmpi.so.12``), not by where it is.
    """
    tensorflow, mpi, gpus = toolchain.tensorflow, toolchain.mpi, toolchain.gpus
    return {
        "horovod": HOROVOD,
        "recipe": RECIPE,
        "python": sysconfig.get_config_var("SOABI") or platform.python_version(),
        "tensorflow": f"{tensorflow.distribution} {tensorflow.version}",
        "mpi": mpi.version,
        "mpi_library": mpi.library.name if mpi.library else "",
        "cuda": f"{gpus.cuda.release}, NCCL {gpus.nccl.version}" if gpus else "",
        "machine": f"{platform.system()} {platform.machine()} {' '.join(platform.libc_ver())}",
        **target_options(),
    }


@dataclass(frozen=True)
class CachedWheel:
    """The place of one wheel.

    Attributes
    ----------
    folder
        It has the wheel, ``made_for.json``, and the log of the build.
    key
        See :func:`made_for`.
    """

    folder: Path
    key: dict[str, str]

    @property
    def log(self) -> Path:
        """The file with all that the build said."""
        return self.folder / "build.log"

    def find(self) -> Path | None:
        """Return the wheel if it is here, complete, and as it was built; else None."""
        try:
            note = json.loads(self._note.read_text(encoding="utf-8"))
            wheel = self.folder / str(note["wheel"])
            digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        except (OSError, ValueError, KeyError, TypeError):  # not built yet, or not to the end
            return None
        return wheel if digest == note["sha256"] else None

    def keep(self, built: Path) -> Path:
        """Move a wheel here, and return its path.

        The note with its digest comes last, so that a wheel that was not moved whole is not found.
        """
        wheel = self.folder / built.name
        built.replace(wheel)
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        note = {"wheel": wheel.name, "sha256": digest, **self.key}
        replace_whole(self._note, json.dumps(note, indent=1).encode())
        return wheel

    @contextlib.contextmanager
    def locked(self, timeout_s: float) -> Iterator[None]:
        """Make the folder, and keep other processes of this user from building there meanwhile.

        Raises
        ------
        BackendUnavailableError
            The folder cannot be made, or others could write to it; or another process has not
            ended after `timeout_s`.
        """
        self._make_folder()
        with (self.folder / "lock").open("wb") as lock:
            try:
                is_ours = try_to_lock(lock, timeout_s, _NAP_S)
            except OSError:  # a file system without locks: two builds do the work twice
                is_ours = True
            if not is_ours:
                raise BackendUnavailableError(
                    f"another process has been building this wheel for more than {timeout_s:g} s;"
                    f" end it, or wait longer (--timeout); it writes {self.log}"
                )
            yield

    def _make_folder(self) -> None:
        top = self.folder.parent
        try:
            for folder in (top.parent, top, self.folder):
                own_folder(folder)
        except OSError as error:
            raise BackendUnavailableError(
                f"cannot make a folder for the wheel: {error}; set MPISTRAT_CACHE to one of your"
                f" own (uid {os.geteuid()})"
            ) from error

    @property
    def _note(self) -> Path:
        return self.folder / "made_for.json"


def cached_wheel(toolchain: Toolchain) -> CachedWheel:
    """Return the place of the wheel for this toolchain. **Local.** Nothing is made or changed."""
    key = made_for(toolchain)
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()
    words = [f"horovod-{HOROVOD}", f"tensorflow-{toolchain.tensorflow.version}"]
    words += ["cuda"] if toolchain.gpus else []
    return CachedWheel(config.cache_folder() / "horovod" / "-".join([*words, digest[:16]]), key)
