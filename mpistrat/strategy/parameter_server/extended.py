"""`ParameterServerExtended`: make variables on ps, and send them optimizers' updates."""

from __future__ import annotations

import itertools
import math
import weakref
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mpistrat.cluster.devices.names import named_devices
from mpistrat.collectives.arrays.conversion import as_array
from mpistrat.collectives.single_process import single_process_communicator
from mpistrat.errors import ArgumentTypeError, ContextError
from mpistrat.ps.client.client import Client
from mpistrat.ps.messages import Apply, CountUp, End, Make
from mpistrat.ps.placement import Placement
from mpistrat.ps.server.optimizer_update import OptimizerUpdate
from mpistrat.ps.transport.endpoint import Endpoint
from mpistrat.strategy.extended import StrategyExtended
from mpistrat.strategy.indexed_slices import IndexedSlices
from mpistrat.strategy.parameter_server.round_gradients import RoundGradients
from mpistrat.strategy.values import DistributedValues
from mpistrat.strategy.variables import colocation
from mpistrat.strategy.variables.base import Variable
from mpistrat.strategy.variables.remote import ServedVariable, VariableSpec
from mpistrat.strategy.variables.sharded.partitioning import partitioned
from mpistrat.strategy.variables.sharded.variable import ShardedVariable
from mpistrat.strategy.variables.updating import RuleUpdate
from mpistrat.tables.rule import Rule

if TYPE_CHECKING:
    from mpistrat.strategy.parameter_server.strategy import ParameterServerStrategy

__all__ = ["ParameterServerExtended"]


class ParameterServerExtended(StrategyExtended):
    """The replicas of a worker, and variables on ps.

    Parameters
    ----------
    strategy
        The strategy that this belongs to.
    endpoint
        Of the chief or a worker.
    partitioner
        Divides variables, or None.
    """

    mirrors_variables = False

    def __init__(
        self, strategy: ParameterServerStrategy, endpoint: Endpoint, partitioner: Any = None
    ) -> None:
        alone = single_process_communicator()
        super().__init__(strategy, alone, [endpoint.me.devices or named_devices(["CPU:0"], 0)])
        self.client = Client(endpoint)
        self._round_gradients: RoundGradients | None = None
        self._partitioner = partitioner
        self._ps_placement = Placement(self.client.num_ps)
        self._keys = itertools.count(1)
        self._known: weakref.WeakValueDictionary[int, ServedVariable] = (
            weakref.WeakValueDictionary()
        )

    @property
    def parameter_devices(self) -> tuple[str, ...]:
        """Devices that hold variables: those of the ps."""
        return tuple(one.device for one in self.client.endpoint.roster.ps)

    @property
    def first_piece(self) -> int:
        """Index of the first piece of a batch: a worker's are cut for its own replicas."""
        return 0

    def create_variable(self, **kwargs: Any) -> Any:
        """Make a variable, or one in parts; each goes to the ps with the fewest bytes."""
        self.communicator.health.check_open()
        if self.client.endpoint.me.task_type != "chief":
            raise ContextError(
                f"variable {kwargs.get('name') or 'Variable'!r} is made in a function on a worker;"
                " make it on the chief, in strategy.scope() and before the function is scheduled"
                " (what an optimizer keeps: optimizer.build(variables))"
            )
        return partitioned(self._make_all, kwargs, self._partitioner)

    def _make_all(self, all_arguments: list[dict[str, Any]]) -> list[ServedVariable]:
        """Make the parts of a variable; if sizes are given, with one part in memory at a time."""
        if any("initial_value" not in arguments for arguments in all_arguments):
            raise ArgumentTypeError("Variable needs an initial_value: an array, or a function")
        plain: Iterable[Variable] = (Variable.plain(**arguments) for arguments in all_arguments)
        sizes = list(map(_known_nbytes, all_arguments))
        if None in sizes:  # parts are placed by their sizes: make all before the first is placed
            plain = list(plain)
            sizes = [one.live().nbytes for one in plain]
        beside = colocation.colocated_with()
        servers = (
            self._ps_placement.place_parts(sizes)
            if beside is None
            else [_first(beside).spec.ps] * len(sizes)
        )
        return [self._make(one, ps) for one, ps in zip(plain, servers, strict=True)]

    def _make(self, plain: Variable, ps: int) -> ServedVariable:
        """Move a variable of this process to a ps."""
        key, value = next(self._keys), plain.live()
        # It waits for the answer: workers have connections of their own, on which a read could
        # overtake a change that is only told.
        self.client.ask(ps, Make(key, value))
        options = (plain.trainable, plain.synchronization, plain.aggregation)
        spec = VariableSpec(key, ps, plain.name, value.shape, value.dtype, *options)
        variable = self.known_variable(spec)
        # Not at exit: the ps end then, with all that they have.
        weakref.finalize(variable, self.client.drop_later, ps, key).atexit = False
        return variable

    def known_variable(self, spec: VariableSpec) -> ServedVariable:
        """Return this member's object for a variable of the job."""
        found = self._known.get(spec.key)
        if found is None:
            strategy: Any = self._strategy
            # Another thread may have made it meanwhile; this member uses one object for a
            # variable.
            found = self._known.setdefault(spec.key, ServedVariable(strategy, spec))
        return found

    def count_step(self, iterations: Any) -> int:
        """Count a step of an optimizer on its ps; return how many there were before."""
        if self._round_gradients is not None:
            return self._round_gradients.count_step(iterations)
        spec = iterations.spec
        # Workers step at the same time: the ps gives each step its own number.
        return self.client.ask(spec.ps, CountUp(spec.key))

    def apply_rule(
        self,
        rule: Rule,
        updates: Sequence[RuleUpdate],
        step: int,
        learning_rate: float,
        iterations: Any,
    ) -> None:
        """Let the ps update variables: gradients travel, one message to each ps. **Local.**"""
        told = [_told(rule, one, step, learning_rate) for one in updates]
        if self._round_gradients is not None:
            self._round_gradients.give(told)
        else:
            self.client.tell_all(told)

    def work_in_rounds(self) -> None:
        """Let an optimizer's steps on this worker be shares of one for the round."""
        self._round_gradients = RoundGradients(self.client)

    def begin_call(self, number: int, place: int) -> None:
        """Begin a function on this worker: by its number, and its place in a round."""
        if self._round_gradients is not None:
            self._round_gradients.begin(number, place)
            # In a round the replicas of all workers are numbered together, in their order; the
            # contexts carry the numbers, so bind() makes them anew.
            before = self.client.endpoint.roster.workers[: max(place, 0)]
            self.first_replica = sum(worker.num_replicas for worker in before)
            self.bind(self._strategy)

    @property
    def num_replicas_in_sync(self) -> int:
        """Replicas whose gradients are summed: of all workers of a round, or of this one."""
        return self.num_replicas if self._round_gradients is None else self.num_replicas_of_all

    @property
    def num_replicas_of_all(self) -> int:
        """Replicas of all workers."""
        return sum(worker.num_replicas for worker in self.client.endpoint.roster.workers)

    def check_covers_all(self, what: str) -> None:
        """Refuse collectives in a round whose other replicas are on other workers."""
        if self._round_gradients is not None:
            raise ContextError(
                f"{what} in a function of a synchronous round: workers do not wait for each other;"
                " an optimizer's apply_gradients sums the gradients of the round; else return"
                " values and combine them on the chief"
            )

    def end(self, has_lost: bool) -> None:
        """Tell all ps that the job is over, and wait until they have heard it."""
        self.client.ask_all_ps(End(has_lost))
        self.leave()
        self.client.endpoint.close()
        self.communicator.close()

    def leave(self) -> None:
        """Unmap memory of the ps, which reference cycles would keep mapped."""
        self.client.unmap_buffers()
        for variable in list(self._known.values()):
            variable.leave()


def _known_nbytes(arguments: dict[str, Any]) -> Any:
    """Return the size of a variable, or None if its arguments do not say it."""
    shape, dtype = arguments.get("shape"), arguments.get("dtype")
    return None if shape is None or dtype is None else math.prod(shape) * np.dtype(dtype).itemsize


def _first(variable: Any) -> Any:
    """Return the first part of a variable in parts."""
    return variable.variables[0] if isinstance(variable, ShardedVariable) else variable


def _told(rule: Rule, update: RuleUpdate, step: int, learning_rate: float) -> tuple[int, Apply]:
    variable, slots, gradient = update
    keys = {name: slot.spec.key for name, slot in slots.items()}
    rows = None
    if isinstance(gradient, DistributedValues):
        gradient = gradient.values[0]  # equal ones: the replicas' sum, in a copy for each
    if isinstance(gradient, IndexedSlices):
        gradient = gradient.summed()
        rows, gradient = gradient.indices, gradient.values
    what = OptimizerUpdate(rule, keys, rows, as_array(gradient), step, learning_rate)
    return variable.spec.ps, Apply(variable.spec.key, what)
