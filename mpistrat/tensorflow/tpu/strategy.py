"""`TPUStrategy`: TensorFlow's TPU strategy, made in one call, for one TPU or several."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from mpistrat import config
from mpistrat.collectives import Communicator
from mpistrat.collectives.checking.raise_on_all import all_or_none
from mpistrat.errors import ArgumentTypeError, UsageError
from mpistrat.tensorflow.tpu.assignment import assigned
from mpistrat.tensorflow.tpu.connect import NUM_STEPS, Steps, Tpu
from mpistrat.tensorflow.tpu.preemption import PreemptionWatch
from mpistrat.tensorflow.tpu.which_tpu import of_rank
from mpistrat.tensorflow.wrapped_strategy.strategy import TFBackedStrategy

__all__ = ["TPUStrategy"]


class TPUStrategy(TFBackedStrategy):
    """TensorFlow's strategy of a TPU, found, connected and initialized in one call.

    Parameters
    ----------
    tpu_cluster_resolver
        A tf.distribute.cluster_resolver.TPUClusterResolver; or the name of a TPU, ``"local"`` on
        a TPU VM, or ``"grpc://host:port"``; or a list of those, one for each rank; or a function
        of the rank that returns one. A name may have ``{rank}`` in it, such as
        ``"slice-{rank}"``. None for what TPU_NAME and its like say on this rank. If the program
        has initialized the TPU, it is not done again.
    experimental_device_assignment
        A tf.tpu.experimental.DeviceAssignment, or a function that returns one for the topology,
        such as ``lambda topology: device_assignment(topology, [1, 1, 1, 2], num_replicas=4)``.
    driver
        The rank that drives the one TPU; None if each rank has one of its own.
    timeout_s
        Of each step: find, connect, initialize, make; default MPISTRAT_TIMEOUT.
    on_preemption
        A function that is called once, in another thread, when this machine is to be taken away.
    comm, backend
        As of `MirroredStrategy`.

    Raises
    ------
    UsageError
        On all ranks: an argument is wrong, there is no name, or ranks have the same TPU.
    ClusterError, CommunicationTimeoutError
        On all ranks: a step failed, or was not done in time; it says which, on which rank, and
        what to check. Who is done waits for all steps of the others, and MPISTRAT_TIMEOUT more.

    Notes
    -----
    **Collective** over `comm`. ``run`` takes a tf.function, or is called in one: TPUs do nothing
    eagerly, so all else raises NotImplementedError.

    On several ranks without a `driver` each has its own TPU. A TPU's program cannot wait for MPI:
    ``run`` computes on this rank's TPU, with its ids and its number of replicas, and
    ``all_reduce`` in it raises UsageError, as do Keras's optimizers in ``fit``. Gradients are
    summed over all TPUs by ``reduce``, on the host, between two calls of ``run``: divide by this
    strategy's ``num_replicas_in_sync``, since tf.distribute.get_strategy() knows of one TPU. On
    the host, variables with ``ON_READ`` and Keras's metrics are read over all TPUs, too: all ranks
    have to read them, and to save checkpoints with them, of which one is kept. With one TPU and a
    `driver`, or with one rank, Keras works as under TensorFlow.

    All ranks of ``srun`` and ``mpirun`` have the same arguments and environment. On TPU VMs, one
    rank on each, ``"local"`` is each one's own; otherwise a rank's is that of ``{rank}``, which is
    SLURM_PROCID, in TPU_NAME as well: ``TPU_NAME='slice-{rank}' srun -n 4 ...``. What else
    TensorFlow's resolver takes, a function can give it: ``lambda rank:
    TPUClusterResolver(f"slice-{rank}", zone="us-central1-b", project="mine")``.

    It was written without a TPU. What runs in its tests: the steps up to initializing, variables,
    datasets, values, ``reduce`` and ``gather``. ``run`` and the three annotations were traced, and
    their graphs read; no program of a TPU was executed.

    References
    ----------
    tf.distribute.TPUStrategy.
    """

    def __init__(  # noqa: PLR0913 - two arguments are tf.distribute's
        self,
        tpu_cluster_resolver: Any = None,
        experimental_device_assignment: Any = None,
        *,
        driver: int | None = None,
        timeout_s: float | None = None,
        on_preemption: Callable[[str], object] | None = None,
        comm: Any = None,
        backend: str = "auto",
    ) -> None:
        # Before the base's constructor, which calls `_made`, and that reads these.
        self._given, self._assignment = tpu_cluster_resolver, experimental_device_assignment
        self._timeout_s = config.timeout_s() if timeout_s is None else timeout_s
        self._watch: PreemptionWatch | None = None
        self._hook = on_preemption
        super().__init__(self._reached, driver=driver, comm=comm, backend=backend)
        if on_preemption is not None:
            self._watch = PreemptionWatch(on_preemption)

    def _made(self, given: Any, communicator: Communicator, driver: int | None) -> Any:
        rank, size = communicator.rank, communicator.size

        def check() -> float:
            _check(self._timeout_s, self._hook)
            self._given = of_rank(self._given, rank, size, driver)
            _check_kind(self._given, rank, size)
            return float(self._timeout_s)

        # Ranks may have unequal deadlines. Each waits for the others as long as the longest
        # allows.
        longest_s = max(all_or_none(communicator, check, "the arguments of TPUStrategy"))
        self._steps = Steps(self._timeout_s, rank, size)
        if driver is not None:
            return super()._made(given, communicator, driver)
        return super()._made(self._of_each_rank(communicator, longest_s), communicator, None)

    def _of_each_rank(self, communicator: Communicator, longest_s: float) -> Any:
        """Return TensorFlow's strategy of this rank's own TPU. **Collective.**"""
        found: list[Any] = []

        def find() -> tuple[str, ...]:
            found.append(self._steps.find(self._given))
            hosts: tuple[str, ...] = found[0].hosts
            return hosts

        def make() -> None:
            found.append(self._reached(found[0]))

        tpus = all_or_none(communicator, find, "finding its TPU", longest_s)
        # Before anybody connects: initializing a TPU again loses the variables that are on it.
        _check_distinct(communicator, tpus)
        # Of the steps one is done: the TPU was found.
        all_or_none(communicator, make, "reaching its TPU", (NUM_STEPS - 1) * longest_s)
        return found[1]

    def _reached(self, tpu: Tpu | None = None) -> tf.distribute.Strategy:
        """Connect to a TPU, by default the given one, and return TensorFlow's strategy of it."""
        found = self._steps.find(self._given) if tpu is None else tpu
        self._topology = self._steps.reach(found)
        return self._steps.make(found, assigned(self._assignment, self._topology))

    @property
    def topology(self) -> Any:
        """The tf.tpu.experimental.Topology of this rank's TPU; None on a rank that waits."""
        return getattr(self, "_topology", None)

    def experimental_assign_to_logical_device(self, tensor: Any, logical_device_id: int) -> Any:
        """See tf.distribute.TPUStrategy; return the tensor, to be on that device. **Local.**"""
        with self._wrapped.translation.of("experimental_assign_to_logical_device"):
            return self.tf_strategy.experimental_assign_to_logical_device(
                tensor, logical_device_id
            )

    def experimental_split_to_logical_devices(
        self, tensor: Any, partition_dimensions: Sequence[int]
    ) -> Any:
        """See tf.distribute.TPUStrategy; return the tensor, to be split. **Local.**"""
        with self._wrapped.translation.of("experimental_split_to_logical_devices"):
            return self.tf_strategy.experimental_split_to_logical_devices(
                tensor, partition_dimensions
            )

    def experimental_replicate_to_logical_devices(self, tensor: Any) -> Any:
        """See tf.distribute.TPUStrategy; return the tensor, to be on all devices. **Local.**"""
        with self._wrapped.translation.of("experimental_replicate_to_logical_devices"):
            return self.tf_strategy.experimental_replicate_to_logical_devices(tensor)

    def close(self) -> None:
        """End the strategy, once all ranks are here. Idempotent. **Collective.**"""
        self._end_watch()
        super().close()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._end_watch()  # after an error no warning could be handled
        super().__exit__(kind, error, trace)

    def _end_watch(self) -> None:
        if self._watch is not None:
            self._watch.close()


def _check(timeout_s: Any, on_preemption: Any) -> None:
    is_number = isinstance(timeout_s, (int, float)) and not isinstance(timeout_s, bool)
    if not is_number or not 0 < timeout_s <= threading.TIMEOUT_MAX:
        raise UsageError(
            f"timeout_s={timeout_s!r}; expected a number of seconds above 0 and at most"
            f" {threading.TIMEOUT_MAX:.0f}"
        )
    if on_preemption is not None and not callable(on_preemption):
        raise UsageError(f"on_preemption={on_preemption!r}; expected a function of one argument")


def _check_kind(given: Any, rank: int, size: int) -> None:
    kind = tf.distribute.cluster_resolver.TPUClusterResolver
    if given is not None and not isinstance(given, (str, kind)):
        raise ArgumentTypeError(
            f"tpu_cluster_resolver={given!r} on rank {rank}/{size}; expected a TPUClusterResolver,"
            " the name of a TPU, a list of those, or None"
        )


def _check_distinct(communicator: Communicator, hosts: list[tuple[str, ...]]) -> None:
    """Raise on all ranks if a host is in the TPUs of two."""
    ranks: dict[str, list[int]] = {}
    machines = communicator.topology.hostnames
    for rank, own in enumerate(hosts):
        for host in {_address(host, machines[rank]) for host in own}:
            ranks.setdefault(host, []).append(rank)
    shared = {host: those for host, those in sorted(ranks.items()) if len(those) > 1}
    if shared:
        communicator.close()  # all ranks raise it
        host, those = next(iter(shared.items()))
        raise UsageError(
            f"the TPUs of ranks {those} have one host, {host}; expected another TPU for each"
            " rank. Give a list of names, or one with {rank} in it, or driver=0 if one rank is to"
            " drive it"
        )


def _address(host: str, machine: str) -> str:
    """Return an address that is of one host only; a loopback address is each machine's own."""
    name = (host.rpartition(":")[0] or host).strip("[]")
    is_loopback = name in ("localhost", "::1") or name.startswith("127.")
    return f"{host} on machine {machine}" if is_loopback else host
