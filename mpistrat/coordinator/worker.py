"""The worker's loop: it runs the functions that the chief sends, in order."""

from __future__ import annotations

import pickle
import select
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from mpistrat import config
from mpistrat.cluster.resolvers.base import ClusterResolver
from mpistrat.coordinator import failures
from mpistrat.coordinator.arguments import unpack_arguments
from mpistrat.coordinator.messages import (
    CallResult,
    CallToRun,
    Results,
    RunCalls,
    UseRounds,
    decoded,
)
from mpistrat.coordinator.per_worker import resources
from mpistrat.coordinator.shipping import pack, packed_buffer
from mpistrat.errors import (
    ArgumentTypeError,
    ContextError,
    CoordinatorError,
    PeerLostError,
)
from mpistrat.ps.messages import End, Fail
from mpistrat.ps.transport.encoding import encoded
from mpistrat.ps.transport.endpoint import Endpoint
from mpistrat.strategy.parameter_server.strategy import ParameterServerStrategy
from mpistrat.strategy.parameter_server.worker_context import working_for
from mpistrat.system.log import get_logger

__all__ = ["Worker", "experimental_get_current_worker_index"]

_LOG = get_logger(__name__)

_REPORT_S = 0.001  # results are sent together, but none waits for longer than this
_EXHAUSTED = "an iterator has no more elements; repeat() its data set, or schedule fewer calls"
_NOTHING = pickle.dumps(None, 5)


class Worker:
    """Runs a worker's functions until the chief says that the job is over.

    Parameters
    ----------
    endpoint
        Of a worker.
    resolver
        That of this rank, which functions find as ``strategy.cluster_resolver``.
    is_thread
        Whether it is a thread of the chief's process, which a function cannot end.
    """

    def __init__(
        self, endpoint: Endpoint, resolver: ClusterResolver | None = None, is_thread: bool = False
    ) -> None:
        self._endpoint, self._is_thread = endpoint, is_thread
        self._stream = endpoint.streams[endpoint.roster.chief]
        self._strategy = ParameterServerStrategy.at_worker(endpoint, resolver)
        self._client = self._strategy.extended.client
        self._functions: dict[int, _Shipped] = {}
        self._resources: dict[int, Any] = {}
        self._results: list[CallResult] = []

    def serve(self) -> bool:
        """Run what comes in until the job is over; tell whether it has lost a member.

        Raises
        ------
        PeerLostError
            The chief has ended, or said that it has failed.
        """
        poll = select.poll()
        poll.register(self._stream.fileno(), select.POLLIN)
        with _holding(working_for, self._strategy), _holding(resources, self._resources):
            try:
                return self._serve(poll)
            finally:
                # A thread's mappings would stay until Python looks for cycles of references.
                self._client.unmap_buffers()

    def _serve(self, poll: select.poll) -> bool:
        with self._strategy.scope():
            while True:
                for message in map(decoded, self._stream.take()):
                    if isinstance(message, RunCalls):
                        self._run(message)
                    elif isinstance(message, UseRounds):
                        self._strategy.extended.work_in_rounds()
                    elif isinstance(message, Fail):
                        raise self._stream.failed(message.reason)
                    else:
                        end: End = message
                        return end.has_lost
                # Without a deadline: a chief may compute for hours, and if its process ends, so
                # does this wait.
                poll.poll()

    def _run(self, message: RunCalls) -> None:
        start = reported = time.perf_counter()
        count = 0
        # Before the calls: the same message may bring one of these functions again.
        for number in message.dropped_functions:
            self._functions.pop(number, None)
        for number in message.dropped_resources:
            self._resources.pop(number, None)
        extended = self._strategy.extended
        for call in message.calls:
            if call.shipped is not None:
                self._functions[call.function] = _Shipped(call.shipped)
            extended.begin_call(call.number, call.place)
            self._results.append(self._call(call))
            count += 1
            now = time.perf_counter()
            if now - reported > _REPORT_S and count < len(message.rows):
                self._report((now - start) / count)
                reported = now
        self._report((time.perf_counter() - start) / max(count, 1))

    def _report(self, average_s: float) -> None:
        results, self._results = self._results, []
        try:
            self._stream.send(encoded(Results.of(results, average_s)), config.timeout_s())
        except PeerLostError:
            # A send fails although the chief's reason, which it sent before, was not read yet.
            for message in map(decoded, self._stream.last_words()):
                if isinstance(message, Fail):
                    raise self._stream.failed(message.reason) from None
            raise

    def _call(self, call: CallToRun) -> CallResult:
        """Run a function; return its result, or its error, as it travels."""
        try:
            args, kwargs = unpack_arguments(call.arguments, call.needed)
            result = self._functions[call.function](*args, **kwargs)
            # Before the result is told: join() promises that all changes are on the ps, and an
            # error of one belongs to this call.
            self._client.flush()
            if result is None:
                return CallResult(call.number, None, _NOTHING)
            return CallResult(
                call.number, None, packed_buffer(self._packed(result, call.function))
            )
        except Exception as error:  # noqa: BLE001 - the chief raises it
            if isinstance(error, StopIteration) and not error.args:
                error.args = (_EXHAUSTED,)  # it comes without a word
            self._settle(error)
            return CallResult(call.number, failures.packed(error), None)
        except SystemExit as leaving:
            # A rank ends with its function's sys.exit(), as any program does; the chief sees a
            # lost worker.
            if not self._is_thread:
                raise
            refused = self._refused_exit(leaving, call.function)
            self._settle(refused)
            return CallResult(call.number, failures.packed(refused), None)

    def _packed(self, result: Any, function: int) -> bytes:
        try:
            return pack(result, "the result")
        except Exception as error:
            raise ArgumentTypeError(
                f"what {self._name(function)} returned on {self._endpoint.me}, of type"
                f" {type(result).__name__}, cannot be sent to the chief: {error}; return plain"
                " data, arrays, or nothing, and keep the rest in variables or a per-worker dataset"
            ) from error

    def _refused_exit(self, leaving: SystemExit, function: int) -> CoordinatorError:
        error = CoordinatorError(
            f"{self._name(function)} called sys.exit({leaving.code!r}) on {self._endpoint.me}, a"
            " thread of the chief's process; expected it to return, or to raise an error"
        )
        error.__cause__ = leaving
        return error

    def _name(self, function: int) -> str:
        return self._functions[function].name

    def _settle(self, error: Exception) -> None:
        """Wait for what a function that failed has changed; what went wrong there is its own."""
        try:
            self._client.flush()
        except Exception as other:  # noqa: BLE001 - the function's error says more
            _LOG.warning("a function failed with %r, and before with %r on a ps", error, other)


@contextmanager
def _holding(variable: ContextVar[Any], value: Any) -> Iterator[None]:
    """Give a variable of this thread a value within the block; later the program goes on."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


class _Shipped:
    """A function as it came; read at its first call, so that an error in that is the call's."""

    def __init__(self, packed: Any) -> None:
        self._packed: Any = packed
        self._function: Callable[..., Any] | None = None

    @property
    def name(self) -> str:
        """For messages."""
        return f"function {getattr(self._function, '__qualname__', self._function)}"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._function is None:
            self._function, self._packed = pickle.loads(self._packed), None
        return self._function(*args, **kwargs)


def experimental_get_current_worker_index() -> int:
    """Return the index of the worker that runs this code.

    Raises
    ------
    ContextError
        It is not a function that a coordinator has scheduled.

    References
    ----------
    tf.distribute.coordinator.experimental_get_current_worker_index.
    """
    strategy = working_for.get()
    if strategy is None:
        raise ContextError(
            "experimental_get_current_worker_index() outside of a function that a"
            " ClusterCoordinator runs on a worker"
        )
    return strategy.extended.client.endpoint.me.task_id
