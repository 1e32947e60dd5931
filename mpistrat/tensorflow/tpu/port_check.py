"""Test whether the ports of a TPU's hosts answer as gRPC servers do, all at a time."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Sequence

from mpistrat.errors import ClusterError

__all__ = ["knock"]

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_NO_SETTINGS = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])  # a frame: length, kind, flags, stream
_KIND = 3  # where it is
_SHOWN = 4


def knock(hosts: Sequence[str], timeout_s: float) -> None:
    """Wait until all hosts have answered; raise at the deadline. **Local.**

    Parameters
    ----------
    hosts
        Their addresses.
    timeout_s
        Of all together. After half as long again those are left whose names are still looked up.

    Raises
    ------
    ClusterError
        Some have not; it names them.
    """
    complaints = dict.fromkeys(hosts, "no answer")

    def ask(host: str) -> None:
        complaints[host] = _complaint(host, timeout_s)

    threads = [
        # Daemons: nothing interrupts the look-up of a name, which would delay the program's end.
        threading.Thread(target=ask, args=(one,), name=f"mpistrat TPU {one}", daemon=True)
        for one in complaints
    ]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 1.5 * timeout_s
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    silent = [f"{host} ({why})" for host, why in complaints.items() if why]
    if silent:
        more = f" and {len(silent) - _SHOWN} more of {len(hosts)}" if len(silent) > _SHOWN else ""
        raise ClusterError(f"no connection to {', '.join(silent[:_SHOWN])}{more}")


def _complaint(address: str, timeout_s: float) -> str:
    try:
        _greet(address, time.monotonic() + timeout_s)
    except (OSError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def _greet(address: str, deadline: float) -> None:
    """Exchange HTTP/2's connection prefaces with a gRPC server (RFC 9113, 3.4)."""
    host, _, port = address.rpartition(":")
    where = (host.strip("[]"), int(port))
    with socket.create_connection(where, deadline - time.monotonic()) as connection:
        connection.sendall(_PREFACE + _NO_SETTINGS)
        # 0 would mean a socket that does not block.
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        # A server of HTTP/2 begins with a frame of settings, as the client does.
        head = connection.makefile("rb").read(_KIND + 1)
        if head[_KIND:] != _NO_SETTINGS[_KIND : _KIND + 1]:
            raise OSError(f"the server there does not speak gRPC; it began with {head!r}")
