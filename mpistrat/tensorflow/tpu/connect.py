"""Find, connect and initialize a TPU, each step with a deadline and a clear error.

TensorFlow waits for some of what is asked here without end, in code that nothing interrupts; so a
step runs in a thread of its own, which is left behind when its time is over. What a resolver says
is asked for once. While TensorFlow connects no other thread runs, so before that each port is
tried (`port_check.py`).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from mpistrat.errors import ClusterError, CommunicationTimeoutError, UsageError
from mpistrat.tensorflow.original_distribute import distribute
from mpistrat.tensorflow.private import tpu as private_tpu
from mpistrat.tensorflow.tpu.port_check import knock

__all__ = ["NUM_STEPS", "Steps", "Tpu"]

NUM_STEPS = 5
"""How often a rank may wait for its deadline: find, try the ports, connect, initialize, make."""

_NO_NAME = (
    "no TPU is named; give its name, 'local' on a TPU VM, or grpc://host:8470, or set TPU_NAME"
)
_CHECKS = {
    "find": "the name of the TPU, its zone and project, that its state is READY, the credentials"
    " (gcloud auth application-default login) and that cloud-tpu-client is installed",
    "connect to": "that the TPU's gRPC port (8470) can be reached from this machine, and that the"
    " TPU VM's software is for this version of TensorFlow",
    "initialize": "that TensorFlow can run on TPUs here (on a TPU VM: libtpu and the version"
    " tpu-vm-tf-*), that no other program holds the TPU, and the software version of the TPU VM",
    "make a strategy of": "that the device assignment is of this TPU's topology",
}


@dataclass(frozen=True)
class Tpu:
    """A TPU that was found, with its resolver's answers.

    Attributes
    ----------
    resolver
        A TPUClusterResolver.
    name
        Where it is, for errors: ``grpc://host:port``, or ``local``.
    job
        Of its hosts in TensorFlow's cluster.
    hosts
        Their addresses, none if it is this machine's.
    """

    resolver: Any
    name: str
    job: str
    hosts: tuple[str, ...]


class Steps:
    """The steps to connect to one TPU.

    Parameters
    ----------
    timeout_s
        Of each step.
    rank, size
        Of this process, for errors.
    """

    def __init__(self, timeout_s: float, rank: int, size: int) -> None:
        self._timeout_s, self._where = timeout_s, f"rank {rank}/{size}"

    def find(self, given: Any) -> Tpu:
        """Return the TPU of a name or a resolver, once the resolver knows its hosts."""
        is_name = isinstance(given, str)
        name = given if given and is_name else "that the environment names"
        kind = tf.distribute.cluster_resolver.TPUClusterResolver

        def look() -> Tpu:
            is_given = given is not None and not is_name
            return _known(given if is_given else kind(tpu=given or _of_environment()))

        try:
            found: Tpu = self._take("find", name, look)
        except ClusterError as error:
            if "provide a TPU Name" in str(error.__cause__):
                raise UsageError(f"TPUStrategy on {self._where}: {_NO_NAME}") from error
            raise
        return found

    def reach(self, tpu: Tpu) -> Any:
        """Connect and initialize, unless the program has; return the topology."""
        known = private_tpu.initialized_tpu(tpu.resolver)
        if known is not None:
            return known
        # Half: `knock` may take 1.5 times its deadline, and says more than this step's own error.
        self._take("connect to", tpu.name, lambda: knock(tpu.hosts, self._timeout_s / 2))
        self._take("connect to", tpu.name, lambda: _connect(tpu.resolver))
        # The default device is a thread's own, and another thread has connected.
        if tpu.hosts:  # as connecting in this thread would have done
            tf.device(f"/job:{tpu.job}/replica:0/task:0/device:CPU:0").__enter__()
        start = tf.tpu.experimental.initialize_tpu_system
        return self._take("initialize", tpu.name, lambda: start(tpu.resolver))

    def make(self, tpu: Tpu, assignment: Any) -> tf.distribute.Strategy:
        """Return TensorFlow's strategy."""
        kind, how = distribute.TPUStrategy, {"experimental_device_assignment": assignment}
        return self._take("make a strategy of", tpu.name, lambda: kind(tpu.resolver, **how))

    def _take(self, step: str, name: str, call: Callable[[], Any]) -> Any:
        """Return the result of `call`; raise at the deadline."""
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
        # A thread that is late is left behind. It is a daemon, so it does not delay the program's
        # end.
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
    """Return ``"local"`` if TPU_NAME is that, which TensorFlow would look up as a name."""
    return "local" if os.environ.get("TPU_NAME") == "local" else ""


def _known(resolver: Any) -> Tpu:
    """Query a resolver for all facts that are needed."""
    # Once, in this step's thread: each question may go to Google's servers and wait.
    spec, job = resolver.cluster_spec(), resolver.get_job_name()
    hosts = () if spec is None else tuple(spec.as_dict().get(job, ()))
    return Tpu(resolver, resolver.master() or "local", job, hosts)


def _connect(resolver: Any) -> None:
    tf.config.experimental_connect_to_cluster(resolver, make_master_device_default=False)
