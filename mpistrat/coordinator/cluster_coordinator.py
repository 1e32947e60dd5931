"""`ClusterCoordinator`: a chief sends functions to workers, and waits for them or not."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mpistrat.coordinator.arguments import Arguments, pack_arguments
from mpistrat.coordinator.chief.dispatcher import Dispatcher
from mpistrat.coordinator.chief.scheduled_call import Call
from mpistrat.coordinator.on_worker import coordinator_here
from mpistrat.coordinator.per_worker import PerWorkerDataset, Resource
from mpistrat.coordinator.remote_value import RemoteValue, end_of_data
from mpistrat.coordinator.shipping import Functions
from mpistrat.coordinator.worker import Worker
from mpistrat.errors import ArgumentTypeError, ContextError, UsageError
from mpistrat.ps.transport.endpoint import Endpoint
from mpistrat.strategy.input.distributed import (
    DistributedDataset,
    DistributedDatasetsFromFunction,
)
from mpistrat.strategy.nest import map_nest
from mpistrat.strategy.parameter_server.strategy import ParameterServerStrategy
from mpistrat.types import Nest

__all__ = ["ClusterCoordinator"]


class ClusterCoordinator:
    """Sends functions to the workers of a strategy.

    Parameters
    ----------
    strategy
        A `ParameterServerStrategy`, on its chief. There is one coordinator for each: making a
        second one returns the first.
    max_staleness
        None: functions run as soon as workers are free. Else a function begins only when all have
        finished but the last `max_staleness` that were scheduled before it, so it sees what all
        others changed; with 0 one runs after the other.

    Raises
    ------
    UsageError
        `max_staleness` is no such number, or not that of the strategy's first coordinator.

    Notes
    -----
    A function travels to a worker once, with what it captures as it is then: a list that changes
    later stays what it was, a variable of the strategy is always the one on its ps. A coordinator
    that it captures, as the attribute of a method's object, refuses calls there. Arguments travel
    with every call.

    If the strategy is synchronous, as many functions as there are workers make a round, in the
    order in which they are scheduled, one for each worker. Those of the next begin when the
    gradients of this one are summed and applied; `join` and `done` end a round that is not full.
    If a function fails, or what it gave does not fit that of the others, nothing that its round
    gave to an optimizer is applied, on any ps. A ps that lacks memory to apply a round is asked
    again; if it still does, the job ends with an error that says so.

    References
    ----------
    tf.distribute.coordinator.ClusterCoordinator.
    """

    _lock = threading.Lock()

    def __new__(
        cls, strategy: ParameterServerStrategy, *, max_staleness: int | None = None
    ) -> ClusterCoordinator:
        """Return the coordinator of `strategy`, made at the first call."""
        if not isinstance(strategy, ParameterServerStrategy):
            raise ArgumentTypeError(
                f"ClusterCoordinator of a {type(strategy).__name__}; expected a"
                " ParameterServerStrategy"
            )
        _check_staleness(max_staleness)
        with cls._lock:
            if strategy.coordinator is None:
                if strategy.synchronous and max_staleness is not None:
                    raise UsageError(
                        f"ClusterCoordinator with max_staleness={max_staleness!r} of a synchronous"
                        " strategy, whose rounds see all that was before; expected none given"
                    )
                made = super().__new__(cls)
                made._start(strategy, max_staleness)
                strategy.coordinator = made
            found: ClusterCoordinator = strategy.coordinator
        if max_staleness not in (None, found.max_staleness):
            raise UsageError(
                f"ClusterCoordinator with max_staleness={max_staleness!r}: the strategy has one"
                f" with {found.max_staleness!r} already; expected the same, or none given"
            )
        return found

    def __reduce__(self) -> Any:
        return coordinator_here, (self.strategy,)

    def _start(self, strategy: ParameterServerStrategy, max_staleness: int | None) -> None:
        if strategy.extended.client.endpoint.me.task_type != "chief":
            raise ContextError(
                "ClusterCoordinator in a function on a worker; make it on the chief"
            )
        strategy.extended.communicator.health.check_open()
        self._strategy = weakref.ref(strategy)
        if strategy.embedded is not None:
            for endpoint in strategy.embedded.workers:
                strategy.embedded.start(endpoint, _work)
        self._client = strategy.extended.client
        self._dispatcher = Dispatcher(self._client, max_staleness, strategy.synchronous)
        self._functions = Functions(self._forget_function)

    @property
    def strategy(self) -> ParameterServerStrategy:
        """The strategy whose workers run the functions."""
        found = self._strategy()
        if found is None:
            raise UsageError("the strategy of this ClusterCoordinator does not exist any more")
        return found

    @property
    def max_staleness(self) -> int | None:
        """How many functions before it a function may run beside; None for any number."""
        return self._dispatcher.max_staleness

    # --------------------------------------------------------------------------------- work

    def schedule(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> RemoteValue:
        """Let some worker call ``fn(*args, **kwargs)``; returns at once.

        Parameters
        ----------
        fn
            Runs on a worker in a scope of the strategy. It may read and change its variables.
        args, kwargs
            Sent as they are now; of `PerWorkerValues`, and of per-worker datasets and iterators,
            the worker gets its own, of a `RemoteValue` the result: the function begins when it is
            there.

        Returns
        -------
        RemoteValue
            What it will return.

        Raises
        ------
        Exception
            What a function that was scheduled earlier raised; its cause shows the worker's
            traceback. It is raised once; then the coordinator works again, but functions that had
            not begun by then are given up. `fn` is not scheduled.
        CoordinatorError
            In place of a StopIteration of such a function, as of ``next`` at the end of a dataset:
            that would end a ``map`` over calls of `schedule` without a word.
        ArgumentTypeError
            `fn` or an argument cannot travel.

        References
        ----------
        tf.distribute.coordinator.ClusterCoordinator.schedule.
        """
        if not isinstance(args, (list, tuple)):
            raise ArgumentTypeError(
                f"schedule: args is a {type(args).__name__}; expected a list or tuple, args=(x,)"
                " for one argument"
            )
        if not isinstance(kwargs, (Mapping, type(None))):
            raise ArgumentTypeError(
                f"schedule: kwargs is a {type(kwargs).__name__}; expected a dict of the arguments"
                " that are passed by name"
            )
        function = self._functions.find(fn)
        value = RemoteValue(self._dispatcher.wait_for)
        given = (tuple(args), dict(kwargs or {}))
        arguments = pack_arguments(*given, function.name, self.num_workers)
        for needed in arguments.needed:
            self._check_own(needed, function.name)
        self._client.flush()  # the function sees what was changed before it was scheduled
        try:
            self._dispatcher.add(Call(function, arguments, value, given))
        except StopIteration as error:  # of an earlier one: a `map` over this would end by it
            raise end_of_data(error) from error
        return value

    def join(self) -> None:
        """Wait until all scheduled functions have finished.

        What they changed is then on the ps. Raises the error of a function as `schedule` does,
        once all that had begun have finished.

        References
        ----------
        tf.distribute.coordinator.ClusterCoordinator.join.
        """
        self._dispatcher.join()

    def done(self) -> bool:
        """Tell whether all scheduled functions have finished; raises as `schedule` does."""
        return self._dispatcher.is_done()

    def fetch(self, val: Nest) -> Nest:
        """Wait for the results in a nest, and return the nest with them in it.

        Parameters
        ----------
        val
            A `RemoteValue`, or lists, tuples and dicts of them; anything else stays as it is.
        """
        return map_nest(_fetched, val)

    def create_per_worker_dataset(self, dataset_fn: Callable[[], Any]) -> PerWorkerDataset:
        """Let every worker make a dataset of its own.

        Parameters
        ----------
        dataset_fn
            Takes no argument and returns something to iterate, such as a
            ``mpistrat.data.Dataset``; or that itself, which is then copied.

        Returns
        -------
        PerWorkerDataset
            ``iter()`` of it makes an iterator on each worker, from the start; pass that as an
            argument to `schedule`, where ``next(iterator)`` gives the next of the worker's own.

        Raises
        ------
        ArgumentTypeError
            It is a dataset that was distributed on the chief, and so is the chief's.
        """
        if isinstance(dataset_fn, (DistributedDataset, DistributedDatasetsFromFunction)):
            raise ArgumentTypeError(
                f"create_per_worker_dataset of a {type(dataset_fn).__name__}, which is the"
                " chief's; expected a function that makes one on each worker: lambda:"
                " strategy.experimental_distribute_dataset(dataset)"
            )
        return PerWorkerDataset(self, dataset_fn)

    # ------------------------------------------------------------------------------- machinery

    @property
    def num_workers(self) -> int:
        """Number of workers."""
        return len(self._dispatcher.workers)

    def run_on_all_workers(self, fn: Callable[[], Any], resource: Resource) -> None:
        """Let each worker call `fn` before anything that is scheduled later."""
        function = self._functions.find(fn)
        self._client.flush()
        for worker in self._dispatcher.workers:
            value = RemoteValue(self._dispatcher.wait_for)
            call = Call(function, Arguments(), value, resource, is_own=True)
            self._dispatcher.add(call, worker)
        forget = self._dispatcher.forget_resource
        weakref.finalize(resource, forget, resource.number).atexit = False

    def shut_down(self) -> bool:
        """End the workers, for ``strategy.close()``; tell whether one was lost before."""
        self._dispatcher.close()
        return self._dispatcher.has_lost

    def stop(self) -> None:
        """Leave the workers alone, for a strategy that has failed."""
        self._dispatcher.stop()

    def _forget_function(self, number: int) -> None:
        self._dispatcher.forget_function(number)

    def _check_own(self, value: RemoteValue, name: str) -> None:
        if not value.is_of(self._dispatcher.wait_for):
            raise ArgumentTypeError(
                f"a RemoteValue of another coordinator as an argument of {name}; fetch() it, and"
                " pass the result"
            )


def _check_staleness(value: Any) -> None:
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if value is not None and not (is_number and value >= 0):
        raise UsageError(
            f"ClusterCoordinator: max_staleness={value!r}; expected a whole number, 0 or more, or"
            " None for no bound"
        )


def _fetched(leaf: Any) -> Any:
    return leaf.fetch() if isinstance(leaf, RemoteValue) else leaf


def _work(endpoint: Endpoint) -> None:
    """Be a worker in a thread of the chief's process."""
    Worker(endpoint, is_thread=True).serve()
