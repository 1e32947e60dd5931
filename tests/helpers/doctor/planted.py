"""Plant faults on a rank, then run ``mpistrat doctor`` there: ``planted.py FAULTS options...``.

FAULTS is JSON: a list of [rank or null for all, kind, value]. A fault is there before mpistrat is
imported, as it would be before a user's program starts.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

__all__ = ["KINDS"]


def _cores(cores: list[int]) -> None:
    os.sched_setaffinity(0, cores)


def _limit(limits: dict[str, int]) -> None:
    for name, value in limits.items():
        kind = getattr(resource, name)
        hard = resource.getrlimit(kind)[1]
        resource.setrlimit(kind, (value, hard))


def _environment(variables: dict[str, str | None]) -> None:
    for name, value in variables.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value


def _load(library: str) -> None:
    import ctypes

    ctypes.CDLL(library)


def _packages(folder: str) -> None:
    sys.path.insert(0, folder)


def _busy(core: int) -> None:
    """Bind this rank to a core that processes of higher priority use while ranks are compared."""
    import dataclasses

    from mpistrat.doctor import checks

    os.sched_setaffinity(0, [core])
    own = next(check for check in checks.CHECKS if check.name == "ranks.slow_rank")

    def busy_exchange(*arguments: Any) -> Any:
        command = [sys.executable, "-c", "while True: pass"]
        others = [subprocess.Popen(["nice", "-n", "-10", *command]) for _ in range(3)]
        try:
            return own.exchange(*arguments)  # type: ignore[misc]
        finally:
            for other in others:
                other.kill()

    busy = dataclasses.replace(own, exchange=busy_exchange)
    checks.CHECKS = tuple(busy if check is own else check for check in checks.CHECKS)


def _sleep(seconds: float) -> None:
    time.sleep(seconds)
    sys.exit(0)


def _stop_in(check: str) -> None:
    """Stop this rank, as if by SIGSTOP from outside, when a check measures."""
    _replace(check, lambda _: os.kill(os.getpid(), signal.SIGSTOP))


def _raise_in(check: str) -> None:
    def measured(_: object) -> None:
        raise OSError(f"planted in {check}")

    _replace(check, measured)


def _replace(name: str, measured: Callable[[Any], None]) -> None:
    import dataclasses

    from mpistrat.doctor import checks

    checks.CHECKS = tuple(
        dataclasses.replace(check, measure=measured) if check.name == name else check
        for check in checks.CHECKS
    )


KINDS: dict[str, Callable[[Any], None]] = {
    "busy": _busy,
    "cores": _cores,
    "environment": _environment,
    "limit": _limit,
    "load": _load,
    "packages": _packages,
    "raise in": _raise_in,
    "sleep": _sleep,
    "stop in": _stop_in,
}


def _main() -> None:
    rank = next((int(os.environ[n]) for n in ("PMI_RANK", "SLURM_PROCID") if n in os.environ), 0)
    for of_rank, kind, value in json.loads(sys.argv[1]):
        if of_rank in (None, rank):
            KINDS[kind](value)
    sys.argv = ["mpistrat", "doctor", *sys.argv[2:]]
    from mpistrat.cli.main import main

    main()


if __name__ == "__main__":
    _main()
