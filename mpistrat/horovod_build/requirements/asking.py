"""Run a tool and return what it says, under a deadline."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Mapping, Sequence

from mpistrat.errors import BackendUnavailableError

__all__ = ["ask"]

_TIMEOUT_S = 60.0
_MOST_LINES = 6


def ask(
    command: Sequence[str],
    advice: str,
    *,
    stdin: str = "",
    env: Mapping[str, str] | None = None,
) -> str:
    """Return the standard output of a command that succeeds. **Local.** It takes 60 s at most.

    Parameters
    ----------
    advice
        The next step of a user whose command fails; it ends the message.
    env
        The whole environment; default: this process's own.

    Raises
    ------
    BackendUnavailableError
        The command cannot be run, fails, or takes too long.
    """
    name = shlex.join(command[:2])
    try:
        done = subprocess.run(
            command,
            input=stdin,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            check=False,
            env=env,
        )
    except OSError as error:
        raise BackendUnavailableError(f"cannot run {name}: {error}; {advice}") from error
    except subprocess.TimeoutExpired as error:
        raise BackendUnavailableError(
            f"{name} gave no answer in {_TIMEOUT_S:g} s; {advice}"
        ) from error
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()[-_MOST_LINES:]
        lines = "\n".join(said)
        raise BackendUnavailableError(f"{name} exited with {done.returncode}; {advice}\n{lines}")
    return done.stdout
