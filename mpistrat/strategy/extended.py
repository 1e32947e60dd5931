"""`StrategyExtended`: run replica functions, make variables and combine values."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from mpistrat.collectives import Communicator
from mpistrat.collectives.arrays import gpu_devices
from mpistrat.errors import ContextError, UsageError
from mpistrat.strategy import context
from mpistrat.strategy.context import Mode
from mpistrat.strategy.reduction.combiner import Combiner
from mpistrat.strategy.reduction.communication_options import CommunicationOptions
from mpistrat.strategy.reduction.cross_device_ops import CollectiveAllReduce, CrossDeviceOps
from mpistrat.strategy.reduction.placement import placement_of
from mpistrat.strategy.reduction.reduce_op import ReduceOp
from mpistrat.strategy.replicas.gpu import handing_over, on_its_gpu
from mpistrat.strategy.replicas.replica_context import ReplicaContext
from mpistrat.strategy.replicas.threads import ReplicaThreads, running
from mpistrat.strategy.values import Mirrored, check_count, regroup, select_replica
from mpistrat.strategy.variables import colocation, creation
from mpistrat.strategy.variables.base import Variable
from mpistrat.strategy.variables.gpu import GpuVariable
from mpistrat.strategy.variables.mirrored import MirroredVariable
from mpistrat.strategy.variables.updating import Updating
from mpistrat.types import Array, Nest

if TYPE_CHECKING:
    from mpistrat.strategy.base import Strategy

__all__ = ["StrategyExtended"]

_CROSS = "Method requires being in cross-replica context, use get_replica_context().merge_call()"


class StrategyExtended(Updating):
    """The members of a strategy that libraries use, and the implementation of `Strategy`.

    Parameters
    ----------
    strategy
        The strategy that this belongs to.
    communicator
        Over the ranks of the strategy.
    devices
        Full device strings of the replicas of every rank, by rank, one each.
    cross_device_ops
        How values are combined; default `CollectiveAllReduce`.
    options
        Options of collectives that are called without any.

    References
    ----------
    tf.distribute.StrategyExtended.
    """

    mirrors_variables = True  # whether variables made in the scope have a copy on each replica

    def __init__(
        self,
        strategy: Strategy,
        communicator: Communicator,
        devices: Sequence[tuple[str, ...]],
        cross_device_ops: CrossDeviceOps | None = None,
        options: CommunicationOptions | None = None,
    ) -> None:
        self.communicator = communicator
        self.options = options or CommunicationOptions()
        self._devices = devices[communicator.rank]
        self.num_local_replicas = len(self._devices)
        are_on_gpus = all(gpu_devices.gpu_index(own[0]) is not None for own in devices)
        self.placement = placement_of(self._devices, are_on_gpus)
        if self.placement.gpu is not None:
            gpu_devices.make_current(self.placement.gpu)
        counts = [len(own) for own in devices]  # replicas by rank, which need not be equally many
        self.first_replica = sum(counts[: communicator.rank])
        self.num_replicas = sum(counts)
        ops = cross_device_ops or CollectiveAllReduce()
        # A program may give one object to several strategies, as in TensorFlow; each strategy
        # attaches its own communicator, so a later one takes a copy.
        self.cross_device_ops = ops if ops.communicator is None else copy.copy(ops)
        self.cross_device_ops.attach(communicator, self.num_replicas)
        self.cross_device_ops.placement = self.placement
        self.combiner = Combiner(communicator, self.cross_device_ops, self.placement, self.options)
        # Then a bare value is one replica's on some ranks, and shared by several on others.
        self.combiner.is_uneven = min(counts) == 1 < max(counts)
        # Variables are made by all ranks in one order: a number is one variable on all of them.
        self.variable_numbers = itertools.count()
        self.bind(strategy)

    def bind(self, strategy: Strategy) -> None:
        """Make this the extended part of `strategy`."""
        self._strategy = strategy
        self.replica_contexts = tuple(
            ReplicaContext(strategy, index, self.first_replica + index)
            for index in range(self.num_local_replicas)
        )

    # ---------------------------------------------------------------------------- properties

    @property
    def first_piece(self) -> int:
        """Index of this rank's first piece of a batch that is cut for `num_replicas`."""
        return self.first_replica

    @property
    def worker_devices(self) -> tuple[str, ...]:
        """Devices of this rank's replicas, in replica order."""
        return self._devices

    @property
    def parameter_devices(self) -> tuple[str, ...]:
        """Devices that hold variables."""
        return self._devices

    @property
    def experimental_between_graph(self) -> bool:
        """Whether each worker runs its own copy of the program: True, every rank does."""
        return True

    @property
    def experimental_require_static_shapes(self) -> bool:
        """Whether shapes must be known beforehand: False."""
        return False

    @property
    def experimental_should_init(self) -> bool:
        """Whether this rank initialises variables: True on all."""
        return True

    @property
    def should_checkpoint(self) -> bool:
        """Whether this rank writes checkpoints: rank 0 does."""
        return self.communicator.rank == 0

    @property
    def should_save_summary(self) -> bool:
        """Whether this rank writes summaries: rank 0 does."""
        return self.communicator.rank == 0

    # ------------------------------------------------------------------------------- replicas

    def require_cross_replica(self) -> None:
        """Raise `ContextError` inside a replica or in another strategy's scope."""
        self.communicator.health.check_open()
        mode = context.current()
        if mode is None:
            return
        if mode.strategy is not self._strategy:
            raise ContextError(
                "Mixing different tf.distribute.Strategy objects: this code is in the scope of"
                f" {mode.strategy!r}, the call is to {self._strategy!r}; leave that scope first"
            )
        if mode.replica is not None:
            raise ContextError(_CROSS)

    def call_for_each_replica(
        self,
        fn: Callable[..., Any],
        args: Any = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Nest:
        """Run `fn` once for each replica of this rank; as ``Strategy.run``. **Local.**

        `args` may also be a single value, as older TensorFlow code passes it, or None for none.
        """
        self.require_cross_replica()
        if not callable(fn):
            raise UsageError(f"fn={fn!r} is a {type(fn).__name__}; expected a function")
        if args is None:
            args = ()
        args = tuple(args) if isinstance(args, (tuple, list)) else (args,)
        try:
            return self._call(fn, args, kwargs or {})
        except BaseException as error:
            # Other ranks may wait in a collective that this one will not come to.
            self.communicator.fail(error)
            raise

    def _call(
        self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Nest:
        if args or kwargs:
            check_count(self.num_local_replicas, (args, dict(kwargs)))
        fn = on_its_gpu(fn, self.placement.gpus)
        if self.num_local_replicas == 1:
            args, kwargs = select_replica(0, args), kwargs and select_replica(0, dict(kwargs))
            with context.enter(Mode(self._strategy, self.replica_contexts[0])):
                return fn(*args, **kwargs)
        return regroup(ReplicaThreads(self.replica_contexts).run(fn, args, kwargs))

    def hand_over(
        self,
        replica: ReplicaContext,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Run a merge call of `replica`; see ``ReplicaContext.merge_call``."""
        run = running.get()
        if run is not None:
            with handing_over():
                return run.hand_over(replica, fn, args, kwargs)
        # The only replica of this rank: call the merge function here, without threads.
        with context.enter(Mode(self._strategy, None)):
            return select_replica(0, fn(self._strategy, *args, **kwargs))

    # ---------------------------------------------------------------------------- collectives

    def check_covers_all(self, what: str) -> None:
        """Raise if the collective `what` would leave out replicas; here it never does."""

    def reduce_to(
        self,
        reduce_op: ReduceOp | str,
        value: Any,
        destinations: Any,
        options: CommunicationOptions | None = None,
    ) -> Mirrored:
        """Combine `value` over all replicas, with a copy for each destination. **Collective.**

        See ``CrossDeviceOps.reduce``. A bare value follows the rule of ``Strategy.reduce``.
        """
        return self.batch_reduce_to(reduce_op, [(value, destinations)], options)[0]

    def batch_reduce_to(
        self,
        reduce_op: ReduceOp | str,
        value_destination_pairs: Sequence[tuple[Any, Any]],
        options: CommunicationOptions | None = None,
    ) -> list[Mirrored]:
        """Combine several values at once, packed into few messages; as :meth:`reduce_to`."""
        self.require_cross_replica()
        op = self.combiner.check_op(reduce_op)
        # What is wrong on this rank alone is raised on all: the others would wait in the
        # reduction.
        with self.communicator.checking():
            pairs = [(self.combiner.distributed(op, v), d) for v, d in value_destination_pairs]
        with self.combiner.labelled(op):
            return self.cross_device_ops.batch_reduce(op, pairs, options or self.options)

    def broadcast_to(self, tensor: Any, destinations: Any) -> Mirrored:
        """Return a copy of `tensor` for each destination. **Local.**"""
        self.require_cross_replica()
        return self.cross_device_ops.broadcast(tensor, destinations)

    # ------------------------------------------------------------------------------ variables

    def create_variable(self, **kwargs: Any) -> Any:
        """Make a variable of this strategy; called by ``Variable(...)`` in its scope."""
        self.communicator.health.check_open()
        replica = context.get_replica_context()
        # All replicas of this rank make this call: they stop, and one variable is made for all of
        # them.
        if replica is not None and self.mirrors_variables:
            return replica.merge_call(creation.create_merged, kwargs=kwargs)
        return creation.create(self._strategy, **kwargs)

    def new_variable(self, value: Array, options: dict[str, Any]) -> Variable:
        """Make a variable that is in step on all replicas, with rank 0's `value`. **Collective.**

        Parameters
        ----------
        value
            This rank's initial value.
        options
            The other arguments of `Variable`, checked.
        """
        return MirroredVariable(self._strategy, creation.copies(self, value, options))

    def new_copy(self, index: int, **options: Any) -> Variable:
        """Make the copy of a variable that a local replica has; `options` are of `Variable`."""
        gpu = None if colocation.is_on_host() else self.placement.gpus[index]
        variable: Variable = (
            Variable.plain(**options) if gpu is None else GpuVariable(gpu, **options)
        )
        return variable

    def variable_created_in_scope(self, v: Any) -> bool:
        """Tell whether this strategy made the variable `v`, or that of the copy `v`. **Local.**"""
        return getattr(self.value_container(v), "distribute_strategy", None) is self._strategy

    def read_var(self, v: Any) -> Array:
        """Return the value of `v` across replicas. **Collective** for ON_READ variables."""
        value: Array = v.read_value()
        return value

    def value_container(self, value: Any) -> Any:
        """Return the distributed variable that `value` is a copy in, or `value`."""
        container = getattr(value, "container", None)
        return value if container is None else container

    @contextmanager
    def colocate_vars_with(self, colocate_with_variable: Any) -> Iterator[None]:
        """Place variables made in this block with that variable, undivided.

        Mirrored variables have a copy on each replica anyway.
        """
        if not self.variable_created_in_scope(colocate_with_variable):
            raise UsageError(
                f"colocate_vars_with({colocate_with_variable!r}): expected a variable made in the"
                " scope of this strategy"
            )
        with colocation.beside(colocate_with_variable):
            yield
