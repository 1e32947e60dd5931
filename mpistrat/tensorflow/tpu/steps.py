"""From the name of a TPU to TensorFlow's strategy: each step has a deadline, and says what failed.

TensorFlow waits for some of what is asked here without end, in code that nothing interrupts; so a
step runs in a thread of its own, which is left behind when its time is over. While TensorFlow
connects no other thread runs, so before that each port is tried: whether it is open, and whether
its server begins as one of gRPC does.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from mpistrat.errors import ClusterError, CommunicationTimeoutError, UsageError
from mpistrat.tensorflow import private_tpu

__all__ = ["Steps"]

_NO_NAME = (
    "no TPU is named; give its name, 'local' on a TPU VM, or grpc://host:8470, or set TPU_NAME"
)
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_NO_SETTINGS = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])  # a frame: length, kind, flags, stream
_KIND = 3  # where it is
_CHECKS = {
    "find": "the name of the TPU, its zone and project, that its state is READY, the credentials"
    " (gcloud auth application-default login) and that cloud-tpu-client is installed",
    "connect to": "that the TPU's gRPC port (8470) can be reached from this machine, and that the"
    " TPU VM's software is for this version of TensorFlow",
    "initialize": "that TensorFlow can run on TPUs here (on a TPU VM: libtpu and the version"
    " tpu-vm-tf-*), that no other program holds the TPU, and the software version of the TPU VM",
    "make a strategy of": "that the device assignment is of this TPU's topology",
}


class Steps:
    """The steps to one TPU.

    Parameters
    ----------
    timeout_s
        Of each step.
    rank, size
        Of this process, for errors.
    """

    def __init__(self, timeout_s: float, rank: int, size: int) -> None:
        self._timeout_s, self._where = timeout_s, f"rank {rank}/{size}"

    def find(self, tpu: Any) -> Any:
        """Return a resolver for a name, or the one that is given, once it knows its hosts."""
        name = tpu if tpu and isinstance(tpu, str) else "that the environment names"

        def look() -> Any:
            is_resolver = hasattr(tpu, "cluster_spec")
            kind = tf.distribute.cluster_resolver.TPUClusterResolver
            resolver = tpu if is_resolver else kind(tpu=tpu or _of_environment())
            resolver.cluster_spec()
            return resolver

        try:
            return self._take("find", name, look)
        except ClusterError as error:
            if "provide a TPU Name" in str(error.__cause__):
                raise UsageError(f"TPUStrategy on {self._where}: {_NO_NAME}") from error
            raise

    def reach(self, resolver: Any) -> Any:
        """Connect and initialize; return the topology. What the program did is left as it is."""
        found = private_tpu.initialized_tpu(resolver)
        if found is not None:
            return found
        name = resolver.master() or "local"
        self._take("connect to", name, lambda: _knock(resolver, self._timeout_s / 2))
        connect = tf.config.experimental_connect_to_cluster
        self._take("connect to", name, lambda: connect(resolver, make_master_device_default=False))
        if resolver.master():  # as connecting in this thread would have done
            tf.device(f"/job:{resolver.get_job_name()}/replica:0/task:0/device:CPU:0").__enter__()
        start = tf.tpu.experimental.initialize_tpu_system
        return self._take("initialize", name, lambda: start(resolver))

    def make(self, resolver: Any, assignment: Any) -> tf.distribute.Strategy:
        """Return TensorFlow's strategy."""
        kind = tf.distribute.TPUStrategy
        name = resolver.master() or "local"
        how = {"experimental_device_assignment": assignment}
        return self._take("make a strategy of", name, lambda: kind(resolver, **how))

    def _take(self, step: str, name: str, call: Callable[[], Any]) -> Any:
        """Return what `call` returns, in time."""
        results: list[Any] = []
        failures: list[Exception] = []

        def run() -> None:
            try:
                results.append(call())
            except Exception as error:  # noqa: BLE001 - raised below, with what to check
                failures.append(error)

        thread = threading.Thread(target=run, name=f"mpistrat TPU {step}", daemon=True)
        start = time.monotonic()
        thread.start()
        thread.join(self._timeout_s)
        text = f"TPUStrategy on {self._where}: could not {step} the TPU {name!r}"
        check = f"check {_CHECKS[step]}"
        if failures:
            why = f"{type(failures[0]).__name__}: {failures[0]}"
            raise ClusterError(f"{text}: {why}; {check}") from failures[0]
        if not results:
            waited = f"no answer in {time.monotonic() - start:.1f} s (timeout_s={self._timeout_s})"
            raise CommunicationTimeoutError(f"{text}: {waited}; {check}")
        return results[0]


def _of_environment() -> str:
    """Return ``"local"`` if that is what TPU_NAME says: TensorFlow would look for such a name."""
    return "local" if os.environ.get("TPU_NAME") == "local" else ""


def _knock(resolver: Any, timeout_s: float) -> None:
    """Raise unless all hosts of a TPU answer as servers of gRPC."""
    jobs = resolver.cluster_spec().as_dict()
    found = [_complaint(one, timeout_s) for one in jobs.get(resolver.get_job_name(), [])]
    silent = [complaint for complaint in found if complaint]
    if silent:
        raise ClusterError(f"no connection to {', '.join(silent)}")


def _complaint(address: str, timeout_s: float) -> str:
    try:
        _greet(address, timeout_s)
    except OSError as error:
        return f"{address} ({type(error).__name__}: {error})"
    return ""


def _greet(address: str, timeout_s: float) -> None:
    """Begin HTTP/2, by which gRPC travels, and wait for the server to do so (RFC 9113, 3.4)."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host.strip("[]"), int(port)), timeout_s) as connection:
        connection.sendall(_PREFACE + _NO_SETTINGS)
        head = connection.makefile("rb").read(_KIND + 1)
        if head[_KIND:] != _NO_SETTINGS[_KIND : _KIND + 1]:
            raise OSError(f"the server there does not speak gRPC; it began with {head!r}")
