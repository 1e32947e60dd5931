"""Find the srun that started this step, to see an option that Slurm itself does not tell."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

__all__ = ["has_option", "kills_on_bad_exit"]

_PROC = Path("/proc")
_OPTION = re.compile(r"^(-K[01]?|--kill-on-bad-exit(=[01])?)$")
_LISTENS = "0A"


def kills_on_bad_exit(environment: Mapping[str, str], script: str) -> bool | None:
    """Return whether the srun of this step has --kill-on-bad-exit; None where that is unknown.

    Parameters
    ----------
    environment
        Of a rank.
    script
        The batch script of the job, "" where there is none.
    """
    if "SLURM_KILL_BAD_EXIT" in environment:
        return environment["SLURM_KILL_BAD_EXIT"] != "0"
    command = _command(environment.get("SLURM_SRUN_COMM_PORT", ""))
    if command:
        return has_option(command)
    return has_option(script.split()) if "srun" in script else None


def has_option(words: list[str]) -> bool:
    """Tell whether a command line of srun has the option, and does not turn it off."""
    found = [word for word in words if _OPTION.match(word)]
    return bool(found) and not found[-1].endswith("0")


def _command(port: str) -> list[str]:
    """Return the command line of the srun that listens at a port of this machine, or []."""
    sockets = {f"socket:[{inode}]" for inode in _listeners(port)} if port.isdigit() else set()
    for folder in _PROC.glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
            if Path(command[0]).name != "srun":
                continue
            files = [os.readlink(file) for file in (folder / "fd").iterdir()]
        except OSError:  # it has ended, or is another user's
            continue
        if sockets & set(files):
            return command
    return []


def _listeners(port: str) -> Iterator[str]:
    """Yield the numbers of the sockets that listen at a TCP port."""
    for name in ("tcp", "tcp6"):
        try:
            lines = (_PROC / "net" / name).read_text().splitlines()[1:]
        except OSError:
            continue
        for words in map(str.split, lines):
            if words[3] == _LISTENS and int(words[1].rpartition(":")[2], 16) == int(port):
                yield words[9]
